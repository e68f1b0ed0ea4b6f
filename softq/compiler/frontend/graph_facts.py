"""What an import has to know of a graph in ONNX: which values are used, what is said of their types, its bodies."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir
from tvm import relax

from softq.compiler.frontend.element_types import BITS, HELD, PLAIN, held, held_array, refuse_computing
from softq.compiler.frontend.onnx_node import Array, Node
from softq.compiler.tir.symbolic import plain
from softq.errors import RefusalError
from softq.graph.queries import subgraphs


class GraphFacts:
    """A graph, and bodies that are imported in the place of their nodes.

    Attributes:
        used: Names of the values that are used.
        types: NumPy's name of the element type, and the shape, of each node's results, as far as the model says them.
        arrays: The arrays of the initializers by name, as a built model holds them.
        dtypes: The element types, by value, that are not those of the integers that hold their bits.
    """

    def __init__(self, graph: ir.Graph, dtypes: Mapping[str, str]) -> None:
        """Take a graph in.

        Args:
            graph: The main graph, or a body.
            dtypes: What is known of the values around it.
        """
        self.dtypes = dict(dtypes)
        self.used: set[str] = set()
        self.types: dict[str, tuple[str | None, list[int | None] | None]] = {}
        self.arrays: dict[str, Array] = {}
        self._nodes: dict[str, ir.Node] = {}
        self.add(graph)

    def add(self, graph: ir.Graph) -> None:
        """Take a graph in."""
        self.used |= used_names(graph)
        for value in (
            *graph.inputs,
            *graph.initializers.values(),
            *(value for node in graph for value in node.outputs),
        ):
            if value.dtype is not None and (dtype := value.dtype.numpy().name) in BITS:
                self.dtypes[value.name or ""] = dtype
        for node in graph:
            for value in node.outputs:
                dims = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
                self.types[value.name or ""] = (None if value.dtype is None else value.dtype.numpy().name, dims)
            self._nodes[node_name(node)] = node
        self.arrays |= {
            name: held_array(value.const_value.numpy())
            for name, value in graph.initializers.items()
            if value.const_value is not None
        }

    def body(self, node: Node, attribute: str) -> ir.Graph:
        """Return a body of a node."""
        return self._nodes[node.name].attributes[attribute].as_graph()

    def check_operands(self, node: Node, domain: str) -> None:
        """Refuse a node that computes with elements that are held as integers.

        Raises:
            RefusalError: naming node and type.
        """
        refuse_computing(
            node.operator, node.name, {self.dtypes[name] for name in node.inputs if name in self.dtypes}, domain
        )

    def check_known(self, name: str, dtype: str) -> None:
        """Refuse a value that the model gives no type if it may be held as something else.

        Args:
            name: Its name.
            dtype: The type that it is held in.

        Raises:
            RefusalError: naming the value.
        """
        if self.dtypes and dtype in HELD:
            raise RefusalError(f"the element type of {name!r} is not known; it may be {min(self.dtypes.values())}")

    def check(self, node: Node, name: str, result: relax.Expr) -> None:
        """Refuse a result whose type is not the one that ONNX infers, as far as ONNX can tell.

        Args:
            node: What gives it.
            name: Its name.
            result: The result.

        Raises:
            RefusalError: naming the result and the type.
        """
        what = f"{node.operator} {name!r}"
        shape = getattr(result.ty, "shape", None)
        if not isinstance(result.ty, relax.TensorType):
            raise RefusalError(f"{what} gives no tensor, and a built model has nothing else")
        if shape is None or not hasattr(shape, "values"):
            raise RefusalError(
                f"{what} has a shape that depends on data, or on dimensions that are not known to be equal"
            )
        if str(result.ty.dtype) not in PLAIN:
            raise RefusalError(f"{what} is {result.ty.dtype}, which has no kernels")
        dtype, dims = self.types.get(name, (None, None))
        if dtype is None:
            self.check_known(name, str(result.ty.dtype))
        found = [plain(d) for d in shape.values]
        if dtype is not None and str(result.ty.dtype) != held(dtype):
            raise RefusalError(f"TVM gives {result.ty.dtype} for {what}, which is {dtype} in ONNX")
        if dims is None:
            return
        pairs = zip(found, dims, strict=False)
        if len(found) != len(dims) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise RefusalError(f"TVM gives the shape {found} for {what}, which is {dims} in ONNX")


def node_name(node: onnx.NodeProto | ir.Node) -> str:
    """Return the name of a node's first result, or its own."""
    outputs = node.output if isinstance(node, onnx.NodeProto) else [value.name for value in node.outputs]
    return next((name for name in outputs if name), node.name or "")


def used_names(graph: ir.Graph) -> set[str]:
    """Return the names of the values that a graph uses, those that its bodies take from around them among them."""
    found = {value.name or "" for value in graph.outputs}
    for node in graph:
        found.update(value.name or "" for value in node.inputs if value is not None)
        for _, body in subgraphs(node):
            made = {value.name for inner in body for value in inner.outputs}
            made.update(value.name for value in body.inputs)
            found |= used_names(body) - made - set(body.initializers)
    return found
