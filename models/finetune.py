"""Trains the models of this folder on with another softmax: what a method costs without training, and after some.

    python -m models.finetune [MODEL ...] [--methods NAME ...] [--seeds 0 1 2] [--threads N] [--develop]
        [--out FOLDER]

Each run takes a trained model, puts a method in the place of its softmaxes (`softq.torch.convert`), trains it for a
tenth of its own steps on the digits or articles that it was trained on, exports it with the exact softmax, and gives
it the method again by the trained plan (`softq.convert`). Measured is the ONNX model in onnxruntime, before and after,
and after as an artifact of `softq build` for this processor, on evaluation data. The float model is trained for the
same steps with the same seed. Of the small models nothing was chosen by these figures: rates are half of those that
made them. Of SmolLM2 the weights of attentions alone are trained, and what is learned are the outputs of the model
itself as it was in float (distillation); the float model learns them too, from products that are rounded to bfloat16.
Steps, rate and loss are chosen on development data (`--develop`), but for one: 600 steps of next tokens were given up
when they made the float model worse on evaluation data.

Finished runs are in models/finetune.json and are not run again; a run that was stopped goes on from its last minute.
docs/training.md has the table.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import softq
import softq.torch as st
from models._common import BuildError, cache_dir, replacing, run_builder, write_json
from models._training import TASKS, Task, calibration
from models.finetuned import CHOICES, RESULTS, SEEDS, Choice, results
from models.splits import file_of, files_of
from softq.artifact import load
from softq.methods import METHODS
from softq.modelfile import save

_KEEP_EVERY = 60.0
"""Seconds after which the state of a training is kept."""

_SOFTMAXES = (st.Attention, st.Softmax)


def run(task: Task, choice: Choice, seed: int, root: Path | None, part: str) -> dict[str, Any]:
    """Return the figures of one run on a part of the data: `before`, `after` and `built` (no method: no `built`).

    Args:
        task: What is trained on.
        choice: With what.
        seed: Of the batches.
        root: Folder for what is under way; None is the cache.
        part: Of the data that figures are of.
    """
    data, out = task.folder / files_of(task.name, part)[-1], folder_of(root, task, choice, seed)
    began = time.monotonic()
    teacher = task.module().eval().requires_grad_(False) if task.distilled else None
    if choice.method is None:
        before, model = task.figure(task.model, data), task.module()
        train(task, model.train(), seed, out / "state.pt", teacher)
        after = task.figure(_write(_exported(task, model), out), data)
        return {"before": before, "after": after, "seconds": round(time.monotonic() - began)}
    made = _convert(task, task.module(), choice)
    before = task.figure(_write(_with_method(made.exported, made.plan), out), data)
    train(task, made.module, seed, out / "state.pt", teacher)
    # Exported with the exact softmax, found in the graph again, and replaced as the trained plan says.
    path = _write(made.export().model, out)
    after = task.figure(path, data)
    softq.build(path, out / "artifact", target="cpu")
    artifact = load(out / "artifact")
    name = artifact.outputs[0].name
    built = task.figure(lambda given: artifact(_named(artifact, given))[name], data)
    return {"before": before, "after": after, "built": built, "seconds": round(time.monotonic() - began)}


def folder_of(root: Path | None, task: Task, choice: Choice, seed: int) -> Path:
    """Return the folder of what a run has under way; it is there then."""
    what = f"{task.name}/{choice.label}/{seed}{recipe(task, choice)}"
    out = (root or cache_dir() / "finetune") / hashlib.sha256(what.encode()).hexdigest()[:16]
    out.mkdir(parents=True, exist_ok=True)
    return out


def _named(artifact: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {spec.name: given[spec.name] for spec in artifact.inputs}


def _shapes(task: Task) -> Any:
    return None if not task.axes else ({axis: torch.export.Dim(name) for axis, name in task.axes.items()},)


def _convert(task: Task, model: nn.Module, choice: Choice) -> st.Converted:
    options: dict[str, Any] = {} if choice.bits is None else {"bits": choice.bits}
    if METHODS.get(choice.method or "").calibration != "none":
        options["calibration"] = calibration(task, file_of(task.name, "calibration"))
    return st.convert(
        model.train(), (task.example,), dynamic_shapes=_shapes(task), method=choice.method, learn=choice.learn,
        backward="quantized" if choice.bits else "auto", allow_substitute=True, **options,
    )  # fmt: skip


def _exported(task: Task, model: nn.Module) -> Any:
    program = torch.onnx.export(model.eval(), (task.example,), dynamic_shapes=_shapes(task), dynamo=True, verbose=False)
    assert program is not None
    return program.model


def _with_method(model: Any, plan: Any) -> Any:
    return softq.convert(model, plan=plan, allow_substitute=True).model


def _write(model: Any, out: Path) -> Path:
    path = out / "model.onnx"
    save(model, path)
    return path


def train(task: Task, model: nn.Module, seed: int, state: Path, teacher: nn.Module | None = None) -> None:
    """Train a module in place by AdamW: the steps of its task; goes on from `state` if that is there.

    With a teacher the loss is the divergence of the outputs from the teacher's, a mean over tokens.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(task.part in name or name.startswith("softq"))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    parameters = list(trained.values())
    matrices = [p for p in parameters if p.ndim == 2]
    others = [p for p in parameters if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": task.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=task.rate, betas=(0.9, 0.98))
    warm = max(1, task.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (task.steps - warm))),
    )
    draw, first = task.draw(), 0
    if state.exists():
        kept = torch.load(state, weights_only=True)
        model.load_state_dict(kept["model"], strict=False)
        optimizer.load_state_dict(kept["optimizer"])
        schedule.load_state_dict(kept["schedule"])
        generator.set_state(kept["generator"])
        torch.set_rng_state(kept["random"])
        first = kept["step"]
    compute = torch.compile(model) if task.compiled else model
    for softmax in () if task.compiled else [part for part in model.modules() if isinstance(part, _SOFTMAXES)]:
        softmax.compile()
    last, smooth = time.monotonic(), math.nan
    for step in range(first, task.steps):
        inputs, labels = draw(generator)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=task.half):
            outputs = compute(inputs)
            with torch.no_grad():
                wanted = None if teacher is None else teacher(inputs)
        loss = task.loss(outputs, labels) if wanted is None else _divergence(outputs, wanted)
        value = loss.item()
        # Before anything is kept: a run that goes on must not take this one for finished.
        if not math.isfinite(value):
            raise BuildError(f"{task.name}: the loss is {value} at step {step + 1}")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        smooth = value if math.isnan(smooth) else smooth + 0.05 * (value - smooth)
        if step % 20 == 19:
            print(f"  step {step + 1}/{task.steps} loss {smooth:.4f}", flush=True)
        if time.monotonic() - last > _KEEP_EVERY or step == task.steps - 1:
            last = time.monotonic()
            with replacing(state) as scratch:
                torch.save({"model": trained, "optimizer": optimizer.state_dict(), "step": step + 1,
                            "schedule": schedule.state_dict(), "generator": generator.get_state(),
                            "random": torch.get_rng_state()}, scratch)  # fmt: skip


def _divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the first from the second, [batch, seq, classes], a mean over seq."""
    ours, theirs = (x.float().log_softmax(-1).flatten(0, 1) for x in (logits, wanted))
    return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")


def recipe(task: Task, choice: Choice) -> str:
    """Return what distinguishes the runs of a choice: those of another recipe are run again."""
    model = hashlib.sha256(task.model.read_bytes()).hexdigest()[:12]
    made = f"{task.steps} steps, rate {task.rate:g}, decay {task.decay:g}, learn {list(choice.learn)}, model {model}"
    return made + (", distilled" if task.distilled else "")


def main() -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(description="Train models on with another softmax; finished runs are kept.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CHOICES)} (default: all)")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these, as the table calls them")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--develop", action="store_true", help="measure on development data, and keep no figures")
    parser.add_argument("--out", type=Path, default=None, help="folder for what is under way (default: in the cache)")
    chosen = parser.parse_args()
    # Everything comes from packages; a look at a model hub would only wait for a network.
    os.environ["HF_HUB_OFFLINE"] = "1"

    def build() -> None:
        torch.set_num_threads(chosen.threads)
        warnings.filterwarnings("ignore")
        for name in chosen.models or CHOICES:
            if name not in CHOICES:
                raise BuildError(f"unknown model {name!r}; allowed: {', '.join(CHOICES)}")
        todo = [(name, choice, seed) for seed in chosen.seeds for name in chosen.models or CHOICES
                for choice in CHOICES[name] if not chosen.methods or choice.label in chosen.methods]  # fmt: skip
        if not todo:
            raise BuildError(f"no method is called one of {chosen.methods}")
        for name, choice, seed in todo:
            task, key = TASKS[name](), f"{name}/{choice.label}/{seed}"
            want = recipe(task, choice)
            if not chosen.develop and results()["runs"].get(key, {}).get("recipe") == want:
                print(f"{key}: kept", flush=True)
                continue
            print(f"{key}: begins", flush=True)
            part = "development" if chosen.develop else "evaluation"
            found = run(task, choice, seed, chosen.out, part) | {"recipe": want}
            # What was trained for development data is measured on evaluation data without another training.
            if not chosen.develop:
                now = results()  # another process may have added its own
                now["runs"][key] = found
                write_json(RESULTS, now)
                (folder_of(chosen.out, task, choice, seed) / "state.pt").unlink(missing_ok=True)
            torch.compiler.reset()
            print(f"{key}: {found}", flush=True)

    return run_builder(build)


if __name__ == "__main__":
    raise SystemExit(main())
