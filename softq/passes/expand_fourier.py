"""Open discrete Fourier transforms of a known length into products with the matrix of the transform.

A transform of N elements is N multiply-adds a result in place of log N; for the lengths of audio features a product's
kernel makes up for it, and compilers know products and convolutions. A window is multiplied into the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.graph.edits import take_over
from softq.graph.queries import constant_tensor
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry

LONGEST = 2048
"""Elements of a transform that is opened: a matrix of 17 MB, if all its results are wanted twice that."""


class ExpandFourier(NodePass):
    """Opens STFT and DFT where lengths, windows and axes are constants; others stay."""

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        opened = {"STFT": _stft, "DFT": _dft}.get(node.op_type)
        return opened is not None and not container.function and opened(node, container.graph)


def _stft(node: ir.Node, graph: ir.Graph) -> bool:
    """Write a convolution: its strides are the steps from frame to frame, its kernels the rows of the matrix."""
    signal, step = node.inputs[0], _number(node, 1)
    if signal is None or signal.shape is None or step is None or (dtype := _float(signal)) is None:
        return False
    window = None if len(node.inputs) < 3 or node.inputs[2] is None else _array(node.inputs[2])
    length = _number(node, 3) if window is None else len(window)
    given = length if len(node.inputs) < 4 or node.inputs[3] is None else _number(node, 3)
    windowless = len(node.inputs) < 3 or node.inputs[2] is None
    if length is None or given != length or not 1 <= length <= LONGEST or (window is None and not windowless):
        return False
    rank, onesided = len(signal.shape), node.attributes.get_int("onesided", 1) != 0
    complex_signal = rank == 3 and signal.shape[2] != 1
    if rank not in (2, 3) or complex_signal:
        return False
    count = length // 2 + 1 if onesided else length
    real, imaginary = _matrix(length, length, count)
    kernels = np.concatenate([real, imaginary], axis=1).T * (1 if window is None else window)
    _correct(node.outputs[0], count)
    write = _Writer(node, graph, dtype)
    x = write("Unsqueeze", signal, write.ints([1])) if rank == 2 else write("Transpose", signal, perm=[0, 2, 1])
    y = write("Conv", x, write.floats(kernels[:, None, :]), strides=[step])
    y = write("Reshape", y, write.ints([0, 2, count, -1]))
    return write.end("Transpose", y, perm=[0, 3, 2, 1])


def _correct(result: ir.Value, count: int) -> None:
    """Forget shapes that follow from a wrong number of results: ONNX's inference takes `onesided` for 0 by default."""
    if result.shape is None or result.shape[2] == count:
        return
    todo: list[ir.Value] = [result]
    while todo:
        value = todo.pop()
        if value.shape is not None and any(isinstance(dim, int) for dim in value.shape):
            value.shape = ir.Shape([None] * len(value.shape))
            todo += [output for reader in value.consumers() for output in reader.outputs]


def _dft(node: ir.Node, graph: ir.Graph) -> bool:
    """Write a product of the axis, made the last one, with the matrix."""
    x = node.inputs[0]
    if x is None or x.shape is None or (dtype := _float(x)) is None:
        return False
    rank, last, opset = len(x.shape), x.shape[-1], node.version or graph.opset_imports.get("", 20)
    axis = node.attributes.get_int("axis", 1) if "axis" in node.attributes or opset < 20 else _number(node, 2, -2)
    if axis is None or not isinstance(last, int) or not isinstance(elements := x.shape[axis], int):
        return False
    parts = last
    axis, inverse = axis % rank, node.attributes.get_int("inverse", 0) != 0
    onesided = node.attributes.get_int("onesided", 0) != 0
    halved = inverse and onesided
    length = _number(node, 1, 2 * (elements - 1) if halved else elements)
    if length is None or not 1 <= length <= LONGEST or axis == rank - 1 or parts not in (1, 2):
        return False
    if onesided and (parts == 2) != inverse:
        return False
    used = min(elements, length // 2 + 1 if halved else length)
    count = length if inverse or not onesided else length // 2 + 1
    real, imaginary = _matrix(used, length, count)
    if inverse:
        real, imaginary = real / length, -imaginary / length
    if halved:
        # What is left out is the conjugate of what is there.
        twice = np.where((np.arange(used) == 0) | (2 * np.arange(used) == length), 1, 2)[:, None]
        rows = np.stack([real * twice, -imaginary * twice], axis=1)[:, :, :, None]
    elif parts == 2:
        rows = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], axis=1)
    else:
        rows = np.stack([real, imaginary], -1)[:, None]
    write = _Writer(node, graph, dtype)
    order = [*(i for i in range(rank - 1) if i != axis), axis]
    if used < elements:
        x = write("Slice", x, write.ints([0]), write.ints([used]), write.ints([axis]))
    moved = order != list(range(rank - 1))
    if moved:
        x = write("Transpose", x, perm=[*order, rank - 1])
    x = write("Reshape", x, write.ints([0] * (rank - 2) + [used * parts]))
    y = write("MatMul", x, write.floats(rows.reshape(used * parts, -1)))
    shape = write.ints([0] * (rank - 2) + [count, rows.shape[-1]])
    if not moved:
        return write.end("Reshape", y, shape)
    return write.end("Transpose", write("Reshape", y, shape), perm=[*map(order.index, range(rank - 1)), rank - 1])


def _matrix(rows: int, length: int, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the real and the imaginary part of exp(-2 pi i n k / length), n down, k across."""
    # The product is taken modulo the length first, so that the angle is exact.
    angles = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    # What is zero but for the rounding of pi is zero.
    real, imaginary = np.cos(angles), -np.sin(angles)
    return np.where(abs(real) < 1e-15, 0, real), np.where(abs(imaginary) < 1e-15, 0, imaginary)


def _float(value: ir.Value) -> ir.DataType | None:
    return value.dtype if value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16) else None


def _array(value: ir.Value | None) -> NDArray[np.float64] | None:
    tensor = None if value is None else constant_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy(), np.float64)


def _number(node: ir.Node, position: int, default: int | None = None) -> int | None:
    """Return an input that is a constant integer, the default where it is left out, None where it is not known."""
    if position >= len(node.inputs) or node.inputs[position] is None:
        return default
    array = _array(node.inputs[position])
    return None if array is None or array.size != 1 else int(array.item())


class _Writer:
    """Writes nodes in front of one that they take the place of."""

    def __init__(self, node: ir.Node, graph: ir.Graph, dtype: ir.DataType) -> None:
        self.node, self.graph, self.dtype = node, graph, dtype
        self.name, self.count = node.outputs[0].name or "fourier", 0

    def __call__(self, operator: str, *inputs: ir.Value, **attributes: int | Sequence[int]) -> ir.Value:
        node = ir.node(operator, inputs, attributes)
        node.name = node.outputs[0].name = self._fresh()
        self.graph.insert_before(self.node, node)
        return node.outputs[0]

    def end(self, operator: str, *inputs: ir.Value, **attributes: int | Sequence[int]) -> bool:
        """Write the last node, whose result takes the place of the old node's."""
        last, old = self(operator, *inputs, **attributes), self.node.outputs[0]
        last.type, last.shape = old.type, old.shape
        take_over(old, last)
        self.graph.remove(self.node, safe=True)
        return True

    def floats(self, array: NDArray[np.float64]) -> ir.Value:
        """Return an initializer of the signal's type."""
        return self._constant(ir.Tensor(array.astype(self.dtype.numpy())))

    def ints(self, numbers: Sequence[int]) -> ir.Value:
        """Return an initializer of int64 numbers."""
        return self._constant(ir.Tensor(np.array(numbers, np.int64)))

    def _constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.val(self._fresh(), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def _fresh(self) -> str:
        self.count += 1
        return f"{self.name}.{self.count}"


PASS = PassEntry(
    "expand-fourier",
    ExpandFourier,
    "Open Fourier transforms of known lengths into matrix products",
    frozenset({("", "STFT"), ("", "DFT")}),
)
