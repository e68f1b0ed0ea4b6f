"""One way to ONNX for all models here: torch.onnx with eager attention, named inputs and dynamic sizes."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import onnx
import torch


def export(
    model: torch.nn.Module,
    path: Path,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    sizes: Mapping[str, Mapping[int, str]],
    opset: int,
    *,
    dynamo: bool = True,
    optimize: bool = True,
    external_data: bool = False,
) -> None:
    """Writes `model` to `path` as one ONNX file.

    Args:
        model: takes the inputs by position, in the order given.
        path: the file; replaced only once the export has succeeded and the checker has passed.
        inputs: an example of each input; a size that shall be dynamic must be neither 0 nor 1 in it.
        outputs: the outputs' names.
        sizes: of each input, the axes of dynamic size and their names; equal names are equal sizes.
        opset: the version of the default operator set.
        dynamo: torch.export (True) or TorchScript (False, the older exporter).
        optimize: whether the exporter may simplify the graph (dynamo only).
        external_data: whether the weights go to a second file, `path` with `.data` behind its name (dynamo only).
    """
    model.eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    # The model names its data file, so both are written under their final names, in a folder of their own.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder, _quiet():
        scratch = Path(folder) / path.name
        if dynamo:
            dims = {name: torch.export.Dim(name) for axes in sizes.values() for name in axes.values()}
            shapes = [{axis: dims[name] for axis, name in sizes[key].items()} for key in inputs]
            torch.onnx.export(
                model,
                tuple(inputs.values()),
                scratch,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=_as_parameters(model, shapes),
                opset_version=opset,
                dynamo=True,
                optimize=optimize,
                external_data=external_data,
                verbose=False,
            )
        else:
            torch.onnx.export(
                model,
                tuple(inputs.values()),
                str(scratch),
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes={name: dict(axes) for name, axes in sizes.items()},
                opset_version=opset,
                dynamo=False,
                external_data=False,
            )
        strip_metadata(scratch)
        onnx.checker.check_model(str(scratch), full_check=True)
        # The model last: where it stands, its data does too.
        for written in sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name):
            written.replace(path.parent / written.name)


def _as_parameters(model: torch.nn.Module, shapes: Sequence[object]) -> tuple[object, ...]:
    """Returns one entry a parameter of the model's `forward`, a tuple of them for `*inputs`."""
    kinds = [parameter.kind for parameter in inspect.signature(model.forward).parameters.values()]
    single = sum(kind is not inspect.Parameter.VAR_POSITIONAL for kind in kinds)
    return (*shapes[:single], tuple(shapes[single:])) if single < len(kinds) else tuple(shapes)


def strip_metadata(path: Path) -> None:
    """Removes what the exporter notes of the build machine (stack traces, folders) and keeps the rest of the model."""
    model = onnx.load(path, load_external_data=False)
    model.doc_string = ""
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        for value in (*graph.value_info, *getattr(graph, "input", ()), *getattr(graph, "output", ())):
            if isinstance(value, onnx.ValueInfoProto):
                del value.metadata_props[:]
        del graph.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    onnx.save(model, path)


def quiet_transformers() -> None:
    """Turns off the report and the bar of loading weights: both are about training heads these models leave out."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    # The exporters print their progress and warn of their own internals; neither is news to who builds a model.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        yield
