"""Mean average precision of a detector over classes and IoU 0.50 to 0.95, as COCO has it, by pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.errors import InputError
from softq.metrics.base.kinds import HeldMetric
from softq.metrics.base.meter import Floats, Tensors


def _score(outputs: Tensors, labels: Tensors, output: str, label: str | None) -> float:
    found, wanted = outputs[output], labels[str(label)]
    if found.ndim != 3 or found.shape[-1] != 6 or wanted.ndim != 3 or wanted.shape[-1] != 5:
        raise InputError(
            f"metric average-precision: output {output!r} is {list(found.shape)}, label {label!r} {list(wanted.shape)};"
            " expected [N, boxes, 6] of x1, y1, x2, y2, score, class, and [N, boxes, 5] of x1, y1, x2, y2, class"
        )
    return mean_average_precision(found.astype(np.float64), wanted.astype(np.float64))


def mean_average_precision(found: Floats, wanted: Floats) -> float:
    """Return COCO's AP; NaN where no label has a box.

    Args:
        found: [N, boxes, 6]: x1, y1, x2, y2, score, class; a negative class, or a score of 0 or NaN, is no box.
        wanted: [N, boxes, 5]: x1, y1, x2, y2, class; a negative class is no box.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth: list[dict[str, Any]] = [
        {"id": number, "image_id": int(image), "category_id": int(kind), "bbox": [x, y, x2 - x, y2 - y],
         "area": (x2 - x) * (y2 - y), "iscrowd": 0}
        for number, (image, (x, y, x2, y2, kind)) in enumerate(_boxes(wanted, wanted[..., 4] >= 0), start=1)
    ]  # fmt: skip
    # COCO's tool takes the scores of boxes as they are; a NaN has no place in an order.
    taken = (found[..., 5] >= 0) & (found[..., 4] > 0)
    guesses: list[dict[str, Any]] = [
        {"image_id": int(image), "category_id": int(kind), "bbox": [x, y, x2 - x, y2 - y], "score": score}
        for image, (x, y, x2, y2, score, kind) in _boxes(found, taken)
    ]
    if not truth or not guesses:
        return 0.0 if truth else float("nan")
    classes = sorted({one["category_id"] for one in (*truth, *guesses)})
    asked: Any = {
        "images": [{"id": image} for image in range(len(wanted))],
        "categories": [{"id": kind, "name": str(kind)} for kind in classes],
        "annotations": truth,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = asked
        known.createIndex()
        answers = known.loadRes(guesses)  # pyright: ignore[reportArgumentType] # its stubs know files alone
        judge = COCOeval(known, answers, "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[0])


def _boxes(boxes: Floats, there: NDArray[np.bool_]) -> list[tuple[int, list[float]]]:
    return [(image, boxes[image, number].tolist()) for image, number in np.argwhere(there)]


METRIC = HeldMetric(
    name="average-precision",
    direction="higher",
    unit="AP",
    summary="COCO's mAP: output [N,M,6] of x1, y1, x2, y2, score, class; label [N,G,5] of x1, y1, x2, y2, class",
    needs_labels=True,
    score=_score,
    kind=None,
    bounds=(0.0, 1.0),
    needs=("pycocotools", "detection"),
)
