"""What a graph must be before anything walks it: sorted, without circles, of bounded size, attributes of their types.

Every node is looked at once. How many nodes a model has with the calls of its functions opened follows from the counts
of each function, so that what would take for ever is refused in no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from softq.errors import InputError
from softq.limits import current
from softq.modelfile.rules import MICROSOFT, UNKNOWN, VALUES, Rules, rules_of

_Function = tuple[str, str, str]


@dataclass
class _Body:
    """What is known of a function, or of the main graph.

    Attributes:
        nodes: Its nodes, with those of the bodies inside.
        calls: How often it calls each function.
        deepest: For each function how many bodies are around the innermost call.
        depth: Bodies inside one another.
    """

    nodes: int = 0
    calls: Counter[_Function] = field(default_factory=Counter[_Function])
    deepest: dict[_Function, int] = field(default_factory=dict[_Function, int])
    depth: int = 0


def check_structure(model: ir.Model, what: str) -> None:
    """Check a model; `what` is what messages call it.

    Raises:
        InputError: nodes are not sorted, read what nothing computes, form a circle or call their own function; one has
            too few inputs or outputs or an attribute of the wrong type; or a limit of `softq.limits` is passed.
    """
    if len(model.functions) > (most := current().functions):
        raise InputError(
            f"{what} has {len(model.functions)} functions; the limit is {most} (--limit-functions changes it)"
        )
    main, sizes = _read(model, what)
    sizes.check(sizes.nodes(main) + sum(map(sizes.function, model.functions)))


def check_opened(model: ir.Model, what: str) -> None:
    """Check how many nodes a model has with the calls of its functions opened, before they are.

    Raises:
        InputError: more than the limit, or as in `check_structure`.
    """
    main, sizes = _read(model, what)
    if (nodes := sizes.nodes(main)) > (most := current().opened):
        raise InputError(
            f"{what} is below operator set 18 and has functions, which are opened to raise it: it would have {nodes} "
            f"nodes; the limit is {most} (--limit-opened changes it)"
        )


def _read(model: ir.Model, what: str) -> tuple[_Body, _Sizes]:
    reader = _Reader(model, what)
    reader.read(model.graph)
    main = reader.body
    functions: dict[_Function, _Body] = {}
    for identifier, function in model.functions.items():
        reader.read(function)
        functions[identifier] = reader.body
    return main, _Sizes(functions, what)


def check_shape(shape: ir.Shape | None, name: str | None) -> None:
    """Check the shape that a value says it has; a length of -1 is how some exporters write one that is not known.

    Raises:
        InputError: it has more axes than the limit, or another negative length.
    """
    if shape is not None and len(shape) > current().rank:
        raise InputError(
            f"value {name!r} has {len(shape)} axes; the limit is {current().rank} (--limit-rank changes it)"
        )
    for dim in shape or ():
        if isinstance(dim, int) and dim < -1:
            raise InputError(f"value {name!r} has an axis of length {dim}; lengths are not negative")


class _Reader:
    """Walks containers; `body` is what the last one is made of."""

    def __init__(self, model: ir.Model, what: str) -> None:
        self._model, self._what, self.body = model, what, _Body()
        self._imports: Mapping[str, int] = {}
        self._done: set[ir.Node] = set()
        self._is_function = False

    def read(self, top: ir.Graph | ir.Function) -> None:
        """Look at every node of a container and of the bodies inside."""
        self.body, self._done, self._is_function = _Body(), set(), isinstance(top, ir.Function)
        imports = top.opset_imports
        for value in top.outputs:
            if value.producer() is None and value.graph is None:
                raise InputError(
                    f"{self._what} is not a well formed ONNX model: nothing computes its output {value.name!r}"
                )
        self._imports = imports if "" in imports else self._model.opset_imports | dict(imports)
        self._read(top, 1)

    def _read(self, top: ir.Graph | ir.Function, depth: int) -> None:
        body, done, functions = self.body, self._done, self._model.functions
        body.depth = max(body.depth, depth)
        _check_depth(depth, self._what)
        opset = self._imports.get("", 0)
        for node in top:
            for value in node.inputs:
                if value is None:
                    continue
                source = value.producer()
                if source is None:
                    if value.graph is None and value.name:
                        raise InputError(
                            f"{self._what} is not a well formed ONNX model: node {_label(node)} reads {value.name!r}, "
                            "which nothing computes"
                        )
                elif source not in done:
                    self._refuse_order(node, value, source)
            body.nodes += 1
            domain = node.domain
            attributes = node.attributes
            if domain == "":
                rules = rules_of(node.op_type, opset)
                if node.op_type == "Constant":
                    self._check_constant(node)
                if rules is None and not node.outputs:
                    self._check_counts(node, UNKNOWN)
                if rules is not None:
                    self._check_counts(node, rules)
                    if attributes:
                        self._check_types(node, rules.types)
                    if rules.required:
                        self._check_required(node, rules.required)
            elif (identifier := node.op_identifier()) in functions:
                body.calls[identifier] += 1
                body.deepest[identifier] = max(depth, body.deepest.get(identifier, 0))
            elif domain == "com.microsoft" and attributes:
                self._check_types(node, MICROSOFT)
            for attribute in attributes.values():
                if attribute.is_ref():
                    if not self._is_function:
                        raise InputError(
                            f"{self._what} is not a well formed ONNX model: attribute {attribute.name} of node "
                            f"{_label(node)} is that of a function, and no function holds the node"
                        )
                elif attribute.type is ir.AttributeType.GRAPH:
                    self._read(attribute.as_graph(), depth + 1)
                elif attribute.type is ir.AttributeType.GRAPHS:
                    for graph in attribute.as_graphs():
                        self._read(graph, depth + 1)
            done.add(node)

    def _refuse_order(self, node: ir.Node, value: ir.Value, source: ir.Node) -> None:
        where = "computed nowhere before it" if source.graph is None else f"computed by node {_label(source)} behind it"
        raise InputError(
            f"{self._what} is not sorted: node {_label(node)} reads {value.name!r}, which is {where}; "
            "ONNX wants each node behind those whose results it reads, so that there are no circles"
        )

    def _check_counts(self, node: ir.Node, rules: Rules) -> None:
        for noun, count, (least, most) in (
            ("inputs", len(node.inputs), rules.inputs),
            ("outputs", len(node.outputs), rules.outputs),
        ):
            if not least <= count <= most:
                raise InputError(
                    f"{self._what} is not a well formed ONNX model: node {_label(node)} ({node.op_type}) has {count} "
                    f"{noun}; {f'at least {least} are needed' if count < least else f'at most {most} are allowed'}"
                )

    def _check_constant(self, node: ir.Node) -> None:
        if len(node.attributes) != 1 or not VALUES.issuperset(node.attributes):
            raise InputError(
                f"{self._what} is not a well formed ONNX model: Constant {_label(node)} has the attributes "
                f"{', '.join(node.attributes) or 'none'}; exactly one value is needed"
            )

    def _check_required(self, node: ir.Node, required: Collection[str]) -> None:
        missing = [name for name in required if name not in node.attributes]
        if missing:
            raise InputError(
                f"{self._what} is not a well formed ONNX model: node {_label(node)} ({node.op_type}) "
                f"has no attribute {missing[0]}"
            )

    def _check_types(self, node: ir.Node, types: Mapping[str, ir.AttributeType]) -> None:
        for name, attribute in node.attributes.items():
            wanted = types.get(name)
            if wanted is not None and attribute.type is not wanted and attribute.type != wanted:
                raise InputError(
                    f"{self._what} is not a well formed ONNX model: attribute {name} of node {_label(node)} "
                    f"({node.op_type}) has type {attribute.type.name}; {wanted.name} is needed"
                )


class _Sizes:
    """How many nodes functions have with all calls opened."""

    def __init__(self, functions: Mapping[_Function, _Body], what: str) -> None:
        self._functions, self._what = functions, what
        self._known: dict[_Function, tuple[int, int]] = {}
        self._open: set[_Function] = set()

    def nodes(self, body: _Body) -> int:
        """Return the nodes of a body with its calls opened."""
        return self._measure(body, 0)[0]

    def function(self, identifier: _Function) -> int:
        """Return the nodes of a function with its calls opened."""
        return self._of(identifier, 0)[0]

    def check(self, nodes: int) -> int:
        """Return a number of nodes that is not above the limit."""
        if nodes > (most := current().nodes):
            raise InputError(
                f"{self._what} has {nodes if nodes < 10**12 else 'more than 10^12'} nodes with the calls of its "
                f"functions opened; the limit is {most} (--limit-nodes changes it)"
            )
        return nodes

    def _measure(self, body: _Body, above: int) -> tuple[int, int]:
        nodes, depth = body.nodes, body.depth
        for callee, count in body.calls.items():
            inner, height = self._of(callee, above + body.deepest[callee])
            nodes += count * inner
            depth = max(depth, body.deepest[callee] + height)
        _check_depth(above + depth, self._what)
        return self.check(nodes), depth

    def _of(self, identifier: _Function, above: int) -> tuple[int, int]:
        _check_depth(above, self._what)
        if identifier in self._open:
            raise InputError(f"{self._what} is not a well formed ONNX model: function {identifier[1]!r} calls itself")
        if identifier not in self._known:
            self._open.add(identifier)
            self._known[identifier] = self._measure(self._functions[identifier], above)
            self._open.remove(identifier)
        nodes, depth = self._known[identifier]
        _check_depth(above + depth, self._what)
        return nodes, depth


def _check_depth(depth: int, what: str) -> None:
    if depth > (most := current().depth):
        raise InputError(
            f"{what} has more than {most} bodies and calls of functions inside one another, which is the limit "
            "(--limit-depth changes it)"
        )


def _label(node: ir.Node) -> str:
    return repr(node.name or next((output.name for output in node.outputs if output.name), None) or node.op_type)
