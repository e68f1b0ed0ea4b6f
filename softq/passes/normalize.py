"""Bring each softmax that is to be converted into one form: over the last axis, its mask beside it.

The rewritten graph computes what it did before; what the later passes need to know hangs in `node.meta` as a
`Canonical`. A lifted mask stays in the graph too: `Canonical.scores` and `Canonical.mask` name the parts, and whoever
uses them makes the masked scores superfluous.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from softq.errors import RefusalError
from softq.passes import PassEntry
from softq.passes._canonical import CANONICAL_KEY, Canonical, Mask
from softq.passes._forms import FORMS
from softq.passes._forms._facts import Facts, named
from softq.passes._forms._guards import ISNAN_WHERE, look_behind, masked_row
from softq.passes._forms._masks import Lift, find_mask
from softq.passes._forms._operators import find_axis
from softq.passes._forms._ranks import Dims
from softq.passes._graph import ModelView, constant, is_op, operand, producer
from softq.passes.locate import SITES_KEY, all_nodes, locate
from softq.site import META_KEY, Site

MINIMUM_OPSET = 18
"""What a model is raised to: the version that softq's functions are written for."""

_VALID_ABOVE = -1.0
"""Between what an addend is at positions that take part (0) and at masked ones (-1e4 at most), exact in any float."""


class Normalize(ir.passes.InPlacePass):
    """Rewrites each site with the verdict `convert` to the canonical form; a model without sites is located first.

    A model below opset 18 is raised to it. In one that has nothing to convert nothing changes.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Normalize the model; `modified` says whether anything changed.

        Raises:
            RefusalError: the model cannot be raised to opset 18, or a site was lost on the way.
        """
        carried = any(META_KEY in node.meta for node in all_nodes(model))
        if SITES_KEY not in model.meta or (model.meta[SITES_KEY] and not carried):
            locate(model)
        if not _waiting(model):
            return ir.passes.PassResult(model, modified=False)
        raised = _raise(model)
        opened = _open(model)
        editor = _Editor(model)
        for node, site in _waiting(model):
            editor.normalize(node, site, raised)
        return ir.passes.PassResult(model, modified=raised or opened or editor.modified)


def normalize(model: ir.Model) -> bool:
    """Normalize `model` in place and return whether it changed; see `Normalize`."""
    return Normalize()(model).modified


def _waiting(model: ir.Model) -> list[tuple[ir.Node, Site]]:
    """Return the nodes of the sites to be converted that are not canonical yet."""
    found: list[tuple[ir.Node, Site]] = []
    for node in all_nodes(model):
        site = node.meta.get(META_KEY)
        if isinstance(site, Site) and site.takes_method and CANONICAL_KEY not in node.meta:
            found.append((node, site))
    return found


def _raise(model: ir.Model) -> bool:
    """Raise the opset if need be; the sites travel in the meta of their nodes."""
    from softq.passes.raise_opset import RaiseOpset

    if ModelView(model).containers[0].opset >= MINIMUM_OPSET:
        return False
    waiting = _waiting(model)
    before = {site.id for _, site in waiting}
    # What the axis of an old softmax means hangs on the rank, which is proved here where plain inference gives up.
    editor = _Editor(model)
    for node, _ in waiting:
        editor.annotate_value(_scores(node))
    modified = RaiseOpset()(model).modified
    lost = before - {site.id for _, site in _waiting(model)}
    if lost:
        raise RefusalError(f"site {min(lost)} is no longer there after the model was raised to opset {MINIMUM_OPSET}")
    return modified


def _open(model: ir.Model) -> bool:
    """Write every site as a Softmax operator; return whether any was something else."""
    modified = False
    for name, form in FORMS.entries().items():
        waiting = [(node, site) for node, site in _waiting(model) if site.form == name]
        if form.open is None or not waiting:
            continue
        for (node, site), softmax in zip(waiting, form.open(model, [node for node, _ in waiting]), strict=True):
            node.meta.pop(META_KEY)
            softmax.meta[META_KEY] = site
        modified = True
    return modified


class _Editor:
    """Rewrites the sites of one model, one after the other, and remembers whether it changed anything."""

    def __init__(self, model: ir.Model) -> None:
        self.modified = False
        self._model = model
        self._facts = Facts(ModelView(model))
        self._names = {value.name for node in all_nodes(model) for value in (*node.inputs, *node.outputs) if value}
        self._names |= {value.name for c in self._facts.view.containers for value in c.body.inputs}
        self._names |= {name for c in self._facts.view.containers for name in c.graph.initializers}

    def normalize(self, node: ir.Node, site: Site, raised: bool) -> None:
        """Make `node` canonical."""
        if not is_op(node, "Softmax") or operand(node, 0) is None:
            raise RefusalError(f"site {site.id}: node {node.name!r} is a {node.op_type}, which its form does not open")
        if raised and site.axis == -1:
            self._unflatten(node)
        axis = find_axis(node, self._facts)
        if axis.axis is None or axis.flattened:
            raise RefusalError(f"site {site.id}: {axis.refusal or 'its row spans several axes'}")
        self._bypass(node)
        self._annotate(node)
        moved = axis.axis != -1
        if moved:
            self._move_axis_last(node, axis.axis)
        self._set_axis(node)
        behind = look_behind(node.outputs[0], self._facts)
        # Behind the Transpose that moves the axis back, the weights have another layout than the softmax, and so has
        # a mask in front: there both stay in the graph, which is as right and only less clever.
        found = find_mask(_scores(node), self._facts)
        # The logarithm is that of the masked scores themselves.
        lift = None if moved or site.logarithm else found.lift
        scores, mask = (_scores(node), None) if lift is None else self._lift(node, lift)
        # What an operator does to its scores shows only in what it is opened into.
        row = masked_row(found.masked_row, behind.guard)
        site = replace(site, mask=found.kind, masked_row=row, guard=behind.guard)
        node.meta[CANONICAL_KEY] = Canonical(
            site=site,
            scores=scores,
            mask=mask,
            probabilities=behind.weights if behind.guard == ISNAN_WHERE else node.outputs[0],
            nan_becomes_zero=behind.guard == ISNAN_WHERE,
            zero_rows=behind.zero_rows,
        )

    def _unflatten(self, node: ir.Node) -> None:
        """Undo Flatten - Softmax - Reshape over the last axis: so raising writes a softmax whose rank it cannot see."""
        flatten, readers = producer(_scores(node), "Flatten"), node.outputs[0].uses()
        if flatten is None or len(readers) != 1 or node.outputs[0].is_graph_output():
            return
        reshape, _ = next(iter(readers))
        shape = producer(operand(reshape, 1), "Shape") if is_op(reshape, "Reshape") else None
        scores = operand(flatten, 0)
        if shape is None or scores is None or operand(shape, 0) is not scores:
            return
        cut, known = flatten.attributes.get_int("axis", 1), self._facts.shape(scores)
        if cut != -1 and (known is None or cut != len(known) - 1):
            return
        node.replace_input_with(0, scores)
        _give_place(reshape.outputs[0], node.outputs[0])
        node.outputs[0].type = reshape.outputs[0].type or scores.type
        node.outputs[0].shape = reshape.outputs[0].shape or scores.shape
        assert node.graph is not None, "a node of a model belongs to a graph"
        node.graph.remove(reshape, safe=True)
        for dead in (flatten, shape):
            if not dead.outputs[0].uses() and not dead.outputs[0].is_graph_output() and dead.graph is not None:
                dead.graph.remove(dead, safe=True)
        self.modified = True

    def _bypass(self, node: ir.Node) -> None:
        for passed in look_behind(node.outputs[0], self._facts).passed:
            source = passed.inputs[0]
            assert source is not None, "a node that was looked through has an input"
            assert passed.graph is not None, "a node of a model belongs to a graph"
            passed.outputs[0].replace_all_uses_with(source)
            passed.graph.remove(passed, safe=True)
            self.modified = True

    def _annotate(self, node: ir.Node) -> None:
        """Write down types and shapes that the later passes read, where the model is silent and inference is not."""
        values: list[ir.Value | None] = [node.outputs[0], look_behind(node.outputs[0], self._facts).weights]
        value: ir.Value | None = _scores(node)
        for _ in range(4):
            values.append(value)
            above = None if value is None else value.producer()
            if above is None or above.domain:
                break
            values.extend(above.inputs)
            value = operand(above, 0)
        stack, seen = [v for v in values[:2] if v is not None], set[ir.Value]()
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            for reader in current.consumers():
                values.extend((*reader.outputs, *reader.inputs))
                if is_op(reader, "Identity", "Cast", "Where", "Transpose"):
                    stack.extend(reader.outputs)
        for known in values:
            if known is not None:
                self.annotate_value(known)
        self._say(node.outputs[0], self._facts.dtype(_scores(node)), self._facts.shape(_scores(node)))

    def annotate_value(self, value: ir.Value) -> None:
        """Write down what is known of `value`."""
        if value.name != "":
            self._say(value, self._facts.dtype(value), self._facts.shape(value))

    def _say(self, value: ir.Value, dtype: ir.DataType | None, shape: Dims | None) -> None:
        if value.dtype is None and dtype is not None:
            value.type, self.modified = ir.TensorType(dtype), True
        # A shape without a type cannot be written to a file.
        if value.dtype is None or shape is None:
            return
        if value.shape is None or len(value.shape) != len(shape):
            value.shape, self.modified = ir.Shape(named(shape)), True

    def _move_axis_last(self, node: ir.Node, axis: int) -> None:
        scores, weights, graph = _scores(node), node.outputs[0], node.graph
        shape = self._facts.shape(scores)
        shape = self._facts.shape(weights) if shape is None else shape
        assert shape is not None, "without a known rank only the last axis is accepted"
        assert graph is not None, "a node of a model belongs to a graph"
        order = list(range(len(shape)))
        order[axis], order[-1] = order[-1], order[axis]
        name = weights.name or "softmax"
        before = ir.node("Transpose", [scores], {"perm": order}, name=self._fresh(f"{name}/to_last_axis"))
        behind = ir.node("Transpose", [weights], {"perm": order}, name=self._fresh(f"{name}/from_last_axis"))
        back = behind.outputs[0]
        _give_place(weights, back, self._fresh(f"{name}_last_axis"), skip=behind)
        back.type, back.shape = weights.type, weights.shape
        last = ir.Shape([shape[i] for i in order])
        before.outputs[0].name, before.outputs[0].type = self._fresh(f"{name}_scores"), scores.type or weights.type
        if weights.type is not None:
            before.outputs[0].shape, weights.shape = last, last.copy()
        node.replace_input_with(0, before.outputs[0])
        graph.insert_before(node, before)
        graph.insert_after(node, behind)
        self.modified = True

    def _set_axis(self, node: ir.Node) -> None:
        attribute = node.attributes.get("axis")
        if attribute is None or attribute.is_ref() or attribute.as_int() != -1:
            node.attributes["axis"] = ir.AttrInt64("axis", -1)
            self.modified = True

    def _lift(self, node: ir.Node, lift: Lift) -> tuple[ir.Value, Mask]:
        scores = _scores(node) if lift.scores is None else lift.scores
        for to in lift.casts:
            scores = self._cast(node, scores, to)
        if lift.valid_when is not None:
            return scores, Mask(lift.source, lift.valid_when)
        addend = constant(lift.source)
        valid = self._compare(node, lift.source) if addend is None else self._constant_mask(node, lift.source, addend)
        return scores, Mask(valid, valid_when=True)

    def _cast(self, node: ir.Node, value: ir.Value, to: ir.DataType) -> ir.Value:
        for reader in value.consumers():
            if is_op(reader, "Cast") and reader.attributes.get_int("to", 0) == to and _comes_before(reader, node):
                return reader.outputs[0]
        cast = ir.node("Cast", [value], {"to": int(to)}, name=self._fresh(f"{value.name}/unmasked"))
        cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(to), value.shape
        return self._insert(node, cast, f"{value.name}_unmasked")

    def _compare(self, node: ir.Node, addend: ir.Value) -> ir.Value:
        for reader in addend.consumers():
            bound = constant(operand(reader, 1)) if is_op(reader, "Greater") else None
            if bound is not None and bound.shape == () and bound == _VALID_ABOVE and _comes_before(reader, node):
                return reader.outputs[0]
        dtype = self._facts.dtype(addend)
        assert dtype is not None, "an addend whose values are known has a known type"
        number = ir.Tensor(np.array(_VALID_ABOVE, dtype=dtype.numpy()), dtype=dtype)
        limit = ir.node("Constant", [], {"value": number}, name=self._fresh(f"{addend.name}/valid_above"))
        limit.outputs[0].type, limit.outputs[0].shape = ir.TensorType(dtype), ir.Shape(())
        above = self._insert(node, limit, f"{addend.name}_valid_above")
        greater = ir.node("Greater", [addend, above], name=self._fresh(f"{addend.name}/valid"))
        shape = self._facts.shape(addend)
        greater.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
        greater.outputs[0].shape = None if shape is None else ir.Shape(shape)
        return self._insert(node, greater, f"{addend.name}_valid")

    def _constant_mask(self, node: ir.Node, addend: ir.Value, elements: np.ndarray) -> ir.Value:
        valid = np.asarray(elements > _VALID_ABOVE)
        for known in self._constants(node):
            tensor = (
                constant(known) if known.dtype == ir.DataType.BOOL and (known.name or "").endswith("_valid") else None
            )
            if tensor is not None and np.array_equal(tensor, valid):
                return known
        name = self._fresh(f"{addend.name}_valid")
        tensor = ir.tensor(valid, name=name)
        graph = node.graph
        assert graph is not None, "a node of a model belongs to a graph"
        self.modified = True
        if graph is self._model.graph:
            value = ir.Value(
                name=name, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(valid.shape), const_value=tensor
            )
            graph.register_initializer(value)
            return value
        # Functions have no initializers.
        holder = ir.node("Constant", [], {"value": tensor}, name=self._fresh(f"{addend.name}/valid"))
        holder.outputs[0].type, holder.outputs[0].shape = ir.TensorType(ir.DataType.BOOL), ir.Shape(valid.shape)
        holder.outputs[0].name = name
        graph.insert_before(node, holder)
        return holder.outputs[0]

    def _constants(self, node: ir.Node) -> list[ir.Value]:
        graph = node.graph
        assert graph is not None, "a node of a model belongs to a graph"
        nodes = (other for other in graph if is_op(other, "Constant") and _comes_before(other, node))
        return [*graph.initializers.values(), *(other.outputs[0] for other in nodes)]

    def _insert(self, node: ir.Node, new: ir.Node, name: str) -> ir.Value:
        assert node.graph is not None, "a node of a model belongs to a graph"
        new.outputs[0].name = self._fresh(name)
        node.graph.insert_before(node, new)
        self.modified = True
        return new.outputs[0]

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name


def _scores(node: ir.Node) -> ir.Value:
    scores = node.inputs[0]
    assert scores is not None, "a softmax has an input"
    return scores


def _give_place(old: ir.Value, new: ir.Value, renamed: str = "", skip: ir.Node | None = None) -> None:
    """Let `new` be read wherever `old` is, except by `skip`, under the name of `old`, which is `renamed` instead."""
    name, graph = old.name, old.graph
    for reader, index in old.uses():
        if reader is not skip:
            reader.replace_input_with(index, new)
    if old.is_graph_output() and graph is not None:
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
    old.name = renamed or None
    new.name = name


def _comes_before(node: ir.Node, other: ir.Node) -> bool:
    """Whether `node` comes before `other` in the same graph."""
    if node.graph is None or node.graph is not other.graph:
        return False
    return next(n for n in node.graph if n is node or n is other) is node


PASS = PassEntry(
    name="normalize", factory=Normalize, summary="Bring each softmax to one form: last axis, its mask beside it"
)
