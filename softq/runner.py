"""A model that can be run: anything that satisfies `Runner`; `OnnxRunner` makes one of an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from softq.data import Array, TensorSpec
from softq.errors import InputError, UsageError
from softq.scratch import scratch_folder

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    import onnxruntime as ort

# A protobuf message ends at 2 GiB; the rest is for the graph itself.
_SERIAL_BYTES = (2 << 30) - (64 << 20)

_MOST_THREADS = 1024

# onnxruntime's names for element types, where NumPy's is another.
_DTYPES = {"float": "float32", "double": "float64", "string": "str"}


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that none can be started with.

    Raises:
        UsageError: it is below 1, or far too many.
    """
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        raise UsageError(f"threads is {threads}; allowed is 1 to {_MOST_THREADS}")


@runtime_checkable
class Runner(Protocol):
    """A model that can be run: a name for the report, its inputs and outputs, and a call."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it takes."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it can give."""
        ...

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        """Return the named outputs, or all, for one batch."""
        ...


@dataclass(frozen=True)
class Written:
    """A model as its user would run it.

    Attributes:
        runner: Runs it, and leaves the cores alone between the runs.
        size_bytes: What its files take, weights too; None if it has no files.
        path: The file of the ONNX model that it runs; None if there is none.
        close: Releases memory and threads, where the runner does not by itself.
    """

    runner: Runner
    size_bytes: int | None
    path: Path | None = None
    close: Callable[[], None] | None = None


@dataclass(frozen=True)
class OnnxRunner:
    """An ONNX model in onnxruntime on the CPU; made by `OnnxRunner.open`."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    session: ort.InferenceSession
    given: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
        *,
        threads: int | None = None,
        spin: bool = True,
        optimize: bool = True,
        operators: Path | None = None,
        name: str | None = None,
    ) -> OnnxRunner:
        """Return a runner of a model; `threads` is the number of threads, all cores by default.

        Without `spin` its threads sleep as soon as a run ends: those of another session that is timed need the cores.
        Without `optimize` the model runs as it is written: no kernel takes the place of several operators.
        A path is given to onnxruntime as it is, so weights beside the model are mapped, not copied. `operators` is a
        folder of operators that softq's functions run by (`softq.onnxruntime.register`), and not by their bodies.
        `name` is what reports call it: by default the path, or the name of the graph.

        Raises:
            InputError: the model cannot be loaded, or takes something other than tensors; or the operators cannot.
            UsageError: `threads` is below 1.
        """
        import onnxruntime as ort

        check_threads(threads)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or 0
        if not spin:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # What fails is raised; nothing is printed.
        if operators is not None:
            from softq.onnxruntime import register

            register(options, operators)
        name = name_of_model(model) if name is None else name
        with scratch_folder() as folder:
            source = _source(model, name, options, folder)
            try:
                session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            except Exception as error:
                raise InputError(f"{name}: onnxruntime cannot load it: {_one_line(error)}") from error
        inputs = tuple(_spec(name, node) for node in session.get_inputs())
        outputs = tuple(_spec(name, node) for node in session.get_outputs() if node.type.startswith("tensor("))
        return cls(name, inputs, outputs, session)

    def give(self, arrays: Mapping[str, Array]) -> OnnxRunner:
        """Return a runner in the same session that always gets these arrays, which are inputs no more."""
        left = tuple(spec for spec in self.inputs if spec.name not in arrays)
        return replace(self, inputs=left, given=arrays)

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        """Return the named outputs, or all, for one batch.

        Raises:
            InputError: onnxruntime fails.
        """
        names = [spec.name for spec in self.outputs] if outputs is None else list(outputs)
        try:
            values = self.session.run(names, {**inputs, **self.given})
        except Exception as error:
            raise InputError(f"{self.name}: onnxruntime fails while running it: {_one_line(error)}") from error
        return dict(zip(names, cast("list[Array]", values), strict=True))


def name_of_model(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> str:
    """Return what reports call a model: its path, or the name of its graph.

    Raises:
        UsageError: it is no model.
    """
    graph = getattr(model, "graph", None)
    if graph is None:
        from softq.modelfile import check_path

        return os.fspath(check_path(model))
    return f"<{graph.name or type(model).__name__}>"


def _source(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, name: str, options: Any, folder: Path
) -> str | bytes:
    """What onnxruntime is given: a path, or bytes; `folder` holds what fits neither way, and goes when it is loaded."""
    import onnx

    from softq.modelfile import check_functions

    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            what = "is a folder; softq run takes what softq build wrote" if os.path.isdir(model) else "no such file"
            raise InputError(f"{name}: {what}")
        check_functions(model)
        return os.fspath(model)
    if isinstance(model, onnx.ModelProto):
        check_functions(model)
        if any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
            raise InputError(
                f"{name}: its weights lie in other files, and a ModelProto does not say where; give the path"
            )
        # ByteSize itself fails above the limit.
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < _SERIAL_BYTES:
            return model.SerializeToString()
        return _saved(model, folder)
    return _source_of_ir(model, options, folder)


def _source_of_ir(model: ir.Model, options: Any, folder: Path) -> str | bytes:
    import onnx_ir as ir

    tensors = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    outside = [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]
    inside = sum(
        tensor.nbytes for tensor in tensors if tensor is not None and not isinstance(tensor, ir.ExternalTensor)
    )
    folders = {os.path.realpath(tensor.base_dir) for tensor in outside}
    if inside >= _SERIAL_BYTES or len(folders) > 1:
        return _saved(model, folder)
    if folders:
        # The bytes refer to the weights by name; this tells where, and gigabytes need no copy.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folders.pop())
    return ir.to_proto(model).SerializeToString()


def _saved(model: onnx.ModelProto | ir.Model, folder: Path) -> str:
    from softq.modelfile import as_model, save

    path = str(folder / "model.onnx")
    save(as_model(model), path)
    return path


def _spec(name: str, node: Any) -> TensorSpec:
    kind: str = node.type
    if not kind.startswith("tensor("):
        raise InputError(f"{name}: input {node.name!r} is a {kind}; only tensors can be fed from data")
    dtype = kind.removeprefix("tensor(").removesuffix(")")
    shape = tuple(d if isinstance(d, (int, str)) else None for d in node.shape)
    return TensorSpec(node.name, _DTYPES.get(dtype, dtype), shape)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
