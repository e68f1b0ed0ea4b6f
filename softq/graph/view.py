"""A model as its containers: the main graph, bodies and functions, and who reads a value across their borders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from softq.graph.queries import node_label, subgraphs, unique_path

FunctionId = tuple[str, str, str]
"""Domain, name and overload: the key of `ir.Model.functions`."""


@dataclass(frozen=True, eq=False)
class Container:
    """A list of nodes: the main graph, the body of an If, Loop or Scan, or a model-local function.

    Attributes:
        path: Names from the main graph down to here; empty for the main graph, unique in the model.
        body: The nodes.
        opset: Version of the default domain that holds here; 0 if the model does not import it.
        function: The function at the head of the path, or None.
    """

    path: tuple[str, ...]
    body: ir.Graph | ir.Function
    opset: int
    function: FunctionId | None

    @property
    def graph(self) -> ir.Graph:
        """The graph that `ir.Value.graph` names for values of this container."""
        return self.body.graph if isinstance(self.body, ir.Function) else self.body

    @property
    def values(self) -> list[ir.Value]:
        """Its inputs and what its nodes compute."""
        return [*self.body.inputs, *(output for node in self.body for output in node.outputs)]


@dataclass(frozen=True, eq=False)
class Use:
    """One reader of a value: an operand of a node, or (with no node) an output of the model.

    Attributes:
        node: The node that reads, or None for an output of the model.
        index: Which of the node's inputs, or of the model's outputs.
    """

    node: ir.Node | None
    index: int


@dataclass(frozen=True, eq=False)
class ModelView:
    """A model and what its containers have to do with each other; valid as long as none is added or removed."""

    model: ir.Model
    _places: dict[ir.Graph, Mapping[ir.Value, Sequence[int]]] = field(
        default_factory=dict[ir.Graph, Mapping[ir.Value, Sequence[int]]], repr=False
    )
    _resolved: dict[tuple[ir.Node, str], ir.Attr | None] = field(
        default_factory=dict[tuple[ir.Node, str], "ir.Attr | None"], repr=False
    )

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Every container: the main graph with all that nests in it, then each function with its own."""
        found: list[Container] = []
        taken: set[tuple[str, ...]] = set()

        def visit(path: tuple[str, ...], body: ir.Graph | ir.Function, opset: int, function: FunctionId | None) -> None:
            path = unique_path(path, taken) if path else path
            found.append(Container(path, body, opset, function))
            for index, node in enumerate(body):
                for name, graph in subgraphs(node):
                    visit((*path, f"{node_label(node, index)}.{name}"), graph, opset, function)

        opset = default_opset(self.model.opset_imports, 0)
        visit((), self.model.graph, opset, None)
        for identifier, function in self.model.functions.items():
            visit((function_label(identifier),), function, default_opset(function.opset_imports, opset), identifier)
        return tuple(found)

    @property
    def nodes(self) -> Iterator[ir.Node]:
        """The nodes of every container, one container after the other."""
        return (node for container in self.containers for node in container.body)

    @cached_property
    def by_graph(self) -> Mapping[ir.Graph, Container]:
        """The container of each graph object."""
        return {container.graph: container for container in self.containers}

    @cached_property
    def calls(self) -> Mapping[FunctionId, tuple[ir.Node, ...]]:
        """The nodes that call each model-local function, in any container."""
        calls: dict[FunctionId, list[ir.Node]] = {identifier: [] for identifier in self.model.functions}
        for node in self.nodes:
            if node.op_identifier() in calls:
                calls[node.op_identifier()].append(node)
        return {identifier: tuple(nodes) for identifier, nodes in calls.items()}

    @cached_property
    def owners(self) -> Mapping[ir.Graph, ir.Node]:
        """The If, Loop, Scan or other node that each subgraph hangs from."""
        return {graph: node for node in self.nodes for _, graph in subgraphs(node)}

    @cached_property
    def reached(self) -> frozenset[FunctionId]:
        """The functions that the main graph calls, directly or through others."""
        callers: dict[FunctionId, set[FunctionId | None]] = {
            identifier: {self.container_of(node).function for node in nodes} for identifier, nodes in self.calls.items()
        }
        reached: set[FunctionId | None] = {None}
        while True:
            more = {name for name, by in callers.items() if name not in reached and by & reached}
            if not more:
                return frozenset(name for name in reached if name is not None)
            reached |= more

    def container_of(self, node: ir.Node) -> Container:
        """Return the container that holds `node`."""
        assert node.graph is not None, "a node of a model belongs to a graph"
        return self.by_graph[node.graph]

    def uses(self, value: ir.Value) -> Iterator[Use]:
        """Yield who reads `value`: nodes, the model's outputs, and readers of what it becomes across a border.

        Crossed are the outputs of If, Loop and Scan bodies, the outputs of model-local functions (to every call), and
        the inputs of model-local functions.
        """
        seen: set[ir.Value] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            for node, index in current.uses():
                function = self.model.functions.get(node.op_identifier())
                if function is None:
                    yield Use(node, index)
                elif index < len(function.inputs):
                    stack.append(function.inputs[index])
            if current.is_graph_output():
                yield from self._leave(current, stack)

    def _leave(self, value: ir.Value, stack: list[ir.Value]) -> Iterator[Use]:
        graph = value.graph
        assert graph is not None, "a graph output belongs to a graph"
        container = self.by_graph.get(graph)
        for index in self._find_places(graph, value):
            if container is None or graph is self.model.graph:
                yield Use(None, index)
            elif graph in self.owners:
                owner = self.owners[graph]
                # The first output of a Loop's body is its condition and becomes no output of the node.
                position = index - 1 if owner.op_type == "Loop" else index
                if 0 <= position < len(owner.outputs):
                    stack.append(owner.outputs[position])
            elif container.function is not None:
                calls = self.calls[container.function]
                stack.extend(call.outputs[index] for call in calls if index < len(call.outputs))

    def _find_places(self, graph: ir.Graph, value: ir.Value) -> Sequence[int]:
        """Return which outputs of a graph a value is; the table is made anew where the outputs were changed since."""
        outputs, places = graph.outputs, self._places.get(graph, {}).get(value, ())
        if not places or any(place >= len(outputs) or outputs[place] is not value for place in places):
            table: dict[ir.Value, list[int]] = {}
            for place, output in enumerate(outputs):
                table.setdefault(output, []).append(place)
            self._places[graph] = table
            places = table.get(value, ())
        return places

    def attribute(self, node: ir.Node, name: str) -> ir.Attr | None:
        """Return the attribute `name` of `node` with references to a function's attributes resolved.

        Raises:
            LookupError: calls of the function disagree, or there is none; the message says so.
        """
        attribute = node.attributes.get(name)
        if attribute is None or not attribute.is_ref():
            return attribute
        # Calls may lead to a function in as many ways as there are, to the power of their depth.
        if (node, name) not in self._resolved:
            self._resolved[node, name] = self._resolve(node, attribute)
        return self._resolved[node, name]

    def _resolve(self, node: ir.Node, attribute: ir.Attr) -> ir.Attr | None:
        container = self.container_of(node)
        reference = attribute.ref_attr_name
        assert container.function is not None, "only functions hold attribute references"
        assert reference is not None, "a reference has a name"
        label, function = function_label(container.function), self.model.functions[container.function]
        calls = self.calls[container.function]
        if not calls:
            raise LookupError(f"attribute {reference} of function {label} has no value: nothing calls the function")
        values: list[ir.Attr | None] = []
        for call in calls:
            value = self.attribute(call, reference)
            values.append(function.attributes.get(reference) if value is None else value)
        kinds = {None if value is None or value.value is None else repr(value.value) for value in values}
        if len(kinds) > 1:
            said = ", ".join(sorted("absent" if kind is None else kind for kind in kinds))
            raise LookupError(f"the calls of function {label} give its attribute {reference} different values: {said}")
        first = values[0]
        return None if first is None or first.value is None else first


def default_opset(imports: Mapping[str, int], otherwise: int) -> int:
    """Return the version of the default domain, which goes by two names."""
    return imports.get("", imports.get("ai.onnx", otherwise))


def function_label(identifier: FunctionId) -> str:
    """Return `domain::name`, with `:overload` if there is one."""
    domain, name, overload = identifier
    return f"{domain}::{name}" + (f":{overload}" if overload else "")
