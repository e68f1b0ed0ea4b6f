"""Emitted functions: what they are made of, where they run, what is refused, and that their integers are exact."""

from __future__ import annotations

import hashlib
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest

from softq.errors import InputError, ProofError, RefusalError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, Value, run
from softq.rowprog.onnx import arguments, emit, function_name, signature, to_model
from softq.rowprog.onnx.carriers import Carrier, carrier
from tests.amount import amount, slow_but
from tests.rowhost import Array, everywhere, session, whole
from tests.test_methods import ALL, default_program

ROOT = Path(__file__).resolve().parent.parent
OPSETS = range(18, 27)


def loop_program() -> Program:
    """A program with a loop, a sum that needs int64, and every kind of lookup."""
    t = Trace("loop", structure="x", scores=DType.I8)
    d = t.cast(t.row_max(t.scores), DType.I32) - t.cast(t.scores, DType.I32)
    code = t.min(d, 15)
    powers = t.lut(t.table([2**14 >> c for c in range(16)], DType.U32), code)
    curve = t.lut(t.table([round(2**14 * 2 ** (-c / 0.75)) for c in range(15)] + [0], DType.U32), code)
    other = t.lut(t.table([(7 * c) % 16 for c in range(16)], DType.U32), code)
    total = t.row_sum(t.cast(powers + curve + other, DType.I64) * 2**20)
    (last,), (running,) = t.scan(
        [t.const(0, DType.I32)], [d], lambda s, e: ([t.min(s + e, 9999)], [s + t.length()]), [(0, 9999)]
    )
    return t.program(weights=powers, normalizer=total, curve=curve, other=other, last=last, running=running)


def programs() -> Iterator[Program]:
    for name in ALL:
        for masked in (False, True):
            yield default_program(METHODS.get(name), masked=masked)
    yield loop_program()


def head_program() -> tuple[Program, dict[str, Array]]:
    method = METHODS.get("deferred-log")
    options = method.configure({"bits": 3, "r": "head", "steps": "equal"})
    return method.program(options), dict(method.parameters(options, {"r": (0.5, 0.75)}))


# Form


@pytest.mark.parametrize("opset", slow_but(OPSETS, (OPSETS[0], OPSETS[-1])))
def test_functions_are_valid_and_standard_at_every_opset(opset: int) -> None:
    models = [to_model(program, opset=opset) for program in programs()]
    program, values = head_program()
    models.append(to_model(program, values, shape=["batch", "heads", "rows", "N"], opset=opset))
    for model in models:
        onnx.checker.check_model(model, full_check=True)
        (function,) = model.functions
        assert {(o.domain, o.version) for o in function.opset_import} == {("", opset)}
        assert not model.graph.initializer
        nodes = list(function.node)
        for node in nodes:
            assert node.domain == ""
            assert onnx.defs.has(node.op_type, "")
            assert onnx.defs.get_schema(node.op_type, opset, "").since_version <= opset
            for attribute in node.attribute:
                assert not attribute.g.initializer
                nodes.extend(attribute.g.node)
        written = [name for node in nodes for name in node.output]
        assert len(set(written)) == len(written)
        read = {name for node in nodes for name in node.input} | set(function.output)
        read |= {o.name for node in nodes for a in node.attribute for o in a.g.output}
        assert set(written) <= read | {o for n in nodes if n.op_type == "Scan" for o in n.output}


def test_the_lowest_ir_version_that_works() -> None:
    program = default_program(METHODS.get("deferred-log"))
    for opset in OPSETS:
        model = to_model(program, opset=opset)
        assert model.ir_version == {18: 8, 19: 9, 20: 9}.get(opset, 10)


def digest() -> str:
    parts = [to_model(program).SerializeToString(deterministic=True) for program in programs()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_the_same_bytes_in_every_process() -> None:
    command = "from tests.test_emit_onnx import digest; print(digest())"
    here = digest()
    for seed in amount(("4711",), ("0", "4711")):
        done = subprocess.run(
            [sys.executable, "-c", command], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == here, seed


def test_names_are_never_those_of_operators() -> None:
    standard = {schema.name for schema in onnx.defs.get_all_schemas()}
    for name in sorted(standard):
        for structure in ("", "b4"):
            t = Trace(name, structure=structure)
            assert function_name(t.program(probabilities=t.scores)) not in standard
    assert function_name(default_program(METHODS.get("exact"))) == "Exact_f32"
    method = METHODS.get("deferred-log")
    program = method.program(method.configure({"r": 1, "step": 0.5, "steps": "equal"}), scores=DType.U8, masked=True)
    assert function_name(program).startswith("DeferredLog_b4_")
    assert function_name(program).endswith("_valid_u8")


def test_the_signature() -> None:
    program, values = head_program()
    names = signature(program)
    assert (names[0], set(names[1:-1]), names[-1]) == ("scores", {"given_rate", "given_weights"}, "heads")
    given = dict(zip(names[1:], arguments(program, values), strict=True))
    assert given["given_rate"].shape == (2, 1, 1)
    assert given["given_weights"].tolist() == values["weights"].ravel().tolist()
    assert given["heads"].tolist() == [[[0]], [[8]]]


def test_heads_have_tables_of_several_sizes() -> None:
    t = Trace("t", structure="x", scores=DType.U8)
    narrow = t.cast(t.min(t.scores, 9), DType.U8)
    small, large = (t.param(f"p{size}", "head", DType.U8, 0, 100, "a table", size=size) for size in (10, 256))
    program = t.program(probabilities=t.lut(small, narrow) + t.lut(large, t.scores))
    rng = np.random.default_rng(0)
    values = {f"p{size}": rng.integers(0, 100, (3, 1, size), dtype=np.uint8) for size in (10, 256)}
    scores = rng.integers(0, 256, (2, 3, 4, 50), dtype=np.uint8)
    model = to_model(program, values, shape=["batch", "heads", "rows", "N"], opset=18)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {model.graph.input[0].name: scores})
    head = np.arange(3)[:, None, None]
    expected = values["p10"][head, 0, np.minimum(scores, 9)] + values["p256"][head, 0, scores]
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_outputs_may_have_any_name_but_an_input_s() -> None:
    t = Trace("t", structure="x")
    twice = t.scores * 2.0
    program = t.program(probabilities=twice, v0=t.scores, v1=t.scores, v_2=twice)
    x = np.array([[1, 2]], np.float32)
    for _, results in everywhere(program, x, ["v_2", "v1", "probabilities", "v0"]):
        assert [v.tolist() for v in results.values()] == [[[2, 4]], [[1, 2]], [[2, 4]], [[1, 2]]]
    onnx.checker.check_model(to_model(program, outputs=["v0", "v1", "v_2"]), full_check=True)


# Running


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_gives_the_same_integers(opset: int) -> None:
    program = loop_program()
    x = np.random.default_rng(opset).integers(-128, 128, size=(3, 21)).astype(np.int8)
    results = [found for _, found in everywhere(program, x, list(program.outputs), opset=opset)]
    for other in results[1:]:
        for name, expected in results[0].items():
            np.testing.assert_array_equal(other[name], expected, err_msg=name)


@pytest.mark.parametrize("name", [*ALL, "loop"])
def test_functions_can_be_inlined(name: str) -> None:
    program = loop_program() if name == "loop" else default_program(METHODS.get(name), masked=True)
    model = to_model(program)
    flat = onnx.inliner.inline_local_functions(model)
    assert not flat.functions
    onnx.checker.check_model(flat, full_check=True)
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {"scores": (rng.normal(size=(5, 19)) * 9).astype(program.scores.numpy)}
    if program.masked:
        feed["valid"] = rng.random((5, 19)) < 0.8
    for one, other in zip(session(model).run(None, feed), session(flat).run(None, feed), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_ranks_and_lengths(rank: int, length: int) -> None:
    program = loop_program()
    shape = (2, 3, 1, 4, length)[5 - rank :]
    x = np.random.default_rng(rank).integers(-128, 128, size=shape).astype(np.int8)
    results = [found for _, found in everywhere(program, x, list(program.outputs))]
    for name, expected in results[0].items():
        for other in results[1:]:
            np.testing.assert_array_equal(other[name], expected, err_msg=name)


def test_what_no_score_is_part_of_has_the_full_shape() -> None:
    t = Trace("t", structure="x")
    n = t.length()
    program = t.program(
        weights=t.index() + n,
        normalizer=t.cast(n * 2, DType.F32),
        flag=n > 2,
        sum=t.row_sum(t.cast(t.index(), DType.I64)),
    )
    x = np.zeros((2, 3, 4), np.float32)
    for backend, results in everywhere(program, x, list(program.outputs)):
        assert {k: v.shape for k, v in results.items()} == {
            "weights": (2, 3, 4), "normalizer": (2, 3, 1), "flag": (2, 3, 1), "sum": (2, 3, 1)
        }, backend  # fmt: skip
        assert results["weights"][1, 2].tolist() == [4, 5, 6, 7]
        assert results["sum"][1, 2].tolist() == [6]


@pytest.mark.parametrize("name", ALL)
def test_rows_without_elements(name: str) -> None:
    program = default_program(METHODS.get(name))
    found = session(to_model(program)).run(None, {"scores": np.zeros((3, 0), np.float32)})
    # The normalizer too: onnxruntime's reductions keep an empty axis.
    assert all(np.asarray(value).shape == (3, 0) for value in found)


def test_no_rows() -> None:
    program = loop_program()
    found = session(to_model(program, outputs=["weights", "normalizer"])).run(
        None, {"scores": np.zeros((0, 5), np.int8)}
    )
    assert [np.asarray(value).size for value in found] == [0, 0]


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE])
def test_scores_of_other_float_types_are_computed_in_f32(kind: int) -> None:
    program = default_program(METHODS.get("deferred-log"))
    model = to_model(program)
    model.graph.input[0].type.tensor_type.elem_type = kind
    x = (np.random.default_rng(0).normal(size=(4, 33)) * 3).astype(np.float16)
    found = session(model).run(None, {"scores": x.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))})
    ours = run(program, x.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(found[0]), ours["weights"].astype(np.float32))


# Rewrites and faults of onnxruntime that the emitter goes around


def test_a_reciprocal_times_a_number_is_rounded_twice() -> None:
    t = Trace("t", structure="x")
    program = t.program(probabilities=t.scores * t.divide(1, t.row_max(t.scores)))
    x = np.random.default_rng(0).random((50, 40)).astype(np.float32) + 1
    results = [found["probabilities"] for _, found in everywhere(program, x, ["probabilities"])]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_choice_between_conditions() -> None:
    t = Trace("t", structure="x")
    chosen = t.select(t.scores < 2.0, t.scores < 1.0, t.scores < 3.0)
    program = t.program(probabilities=t.scores, chosen=chosen)
    for _, results in everywhere(program, np.array([[0, 1, 2, 3]], np.float32), ["chosen"]):
        assert results["chosen"].tolist() == [[1, 0, 1, 0]]


@pytest.mark.parametrize("limit", [2**31 - 1, 2**31, 2**31 + 1])
def test_carriers_at_the_border_of_int32(limit: int) -> None:
    expected = Carrier.INT32 if limit < 2**31 else Carrier.INT64
    assert carrier(DType.I64, 0, limit) is expected
    assert carrier(DType.I64, -limit - 1, 0) is expected
    for dtype in (DType.U32, DType.I64):
        t = Trace("t", structure="x", scores=dtype)
        a = t.clamp(t.scores, 0, limit)
        results = {
            "a": a, "less": a < limit, "shifted": a >> 1, "odd": a - ((a >> 1) << 1), "greatest": t.row_max(a),
            "half": t.divide(a, 2), "least": t.row_min(a), "sum": t.row_sum(t.cast(a, DType.I64)),
            "back": t.cast(t.min(a, 2**31 - 1), DType.I32), "same": a.eq(limit),
            "chosen": t.select(a < 5, t.const(3, dtype), limit),
        }  # fmt: skip
        program = t.program(weights=t.scores, normalizer=t.length(), **results)
        row = [0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 7]
        v = [min(x, limit) for x in row]
        wanted = {
            "a": v, "less": [x < limit for x in v], "shifted": [x >> 1 for x in v], "odd": [x & 1 for x in v],
            "greatest": [max(v)], "half": [x // 2 for x in v], "least": [min(v)], "sum": [sum(v)],
            "back": [min(x, 2**31 - 1) for x in v], "same": [x == limit for x in v],
            "chosen": [3 if x < 5 else limit for x in v],
        }  # fmt: skip
        for backend, found in everywhere(program, np.array([row], dtype.numpy), list(results)):
            assert {k: x[0].tolist() for k, x in found.items()} == wanted, backend


# Refusals


def refusals() -> list[tuple[type[Exception], str, Callable[[], object]]]:
    t = Trace("t", structure="x")
    plain = t.program(probabilities=t.scores)
    named = Trace("t", structure="x")
    clash = named.program(probabilities=named.scores, scores=named.scores)
    wide = Trace("t", structure="x", scores=DType.U64)
    unsigned = wide.program(probabilities=wide.scores)
    grown = Trace("t", structure="x", scores=DType.U32)
    u64 = grown.cast(grown.scores, DType.U64)
    product = grown.program(probabilities=u64 * u64)
    left = Trace("t", structure="x", scores=DType.I64)
    shifted = left.program(probabilities=left.clamp(left.scores, -1, 0) << 63)
    over = Trace("t", structure="x", scores=DType.I32)
    overflow = over.program(probabilities=over.scores + 1)
    head, values = head_program()
    return [
        (UsageError, "opset is 17; functions need 18 or newer", lambda: emit(plain, opset=17)),
        (UsageError, "has no output 'codes'; it has probabilities", lambda: emit(plain, opset=18, outputs=["codes"])),
        (UsageError, "outputs are none", lambda: emit(plain, opset=18, outputs=[])),
        (UsageError, "each once", lambda: emit(plain, opset=18, outputs=["probabilities"] * 2)),
        (UsageError, "has an input of that name", lambda: emit(clash, opset=18, outputs=["scores"])),
        (RefusalError, "u64 up to 18446744073709551615 cannot be computed in ONNX", lambda: emit(unsigned, opset=18)),
        (RefusalError, "u64 up to 18446744065119617025 cannot be computed in ONNX", lambda: emit(product, opset=18)),
        (RefusalError, "a shift to the left by up to 63 cannot be computed", lambda: emit(shifted, opset=18)),
        (ProofError, r"add: the result is .*; allowed is \[-2147483648, 21", lambda: emit(overflow, opset=18)),
        (ProofError, "row_sum", lambda: emit(default_program(METHODS.get("deferred-log")), opset=18, max_length=2**20)),
        (InputError, r"shape \[2, 8\]; expected \[heads, 1, 8\]",
         lambda: to_model(head, {**values, "weights": values["weights"].reshape(2, 8)})),
        (InputError, r"shape \[1\]; expected \[heads, 1, 1\]",
         lambda: to_model(head, {**values, "rate": np.ones(1, np.float32)})),
    ]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "act"), refusals(), ids=[m for _, m, _ in refusals()])
def test_refusals(error: type[Exception], message: str, act: Callable[[], object]) -> None:
    with pytest.raises(error, match=message):
        act()


# Closed forms of tables


def looked_up(table: list[int] | list[float], dtype: DType) -> tuple[list[float], set[str]]:
    """What onnxruntime makes of a table, and the operators it is made with."""
    t = Trace("t", structure="x", scores=DType.U8)
    last = len(table) - 1
    at = t.cast(t.min(t.scores, last) if last < 255 else t.scores, DType.U16)
    program = t.program(weights=t.lut(t.table(table, dtype), at), normalizer=t.length())
    model = to_model(program, outputs=["weights"])
    positions = np.arange(len(table), dtype=np.uint8)[None]
    found = np.asarray(session(whole(model, program)).run(None, {"scores": positions})[0])
    return found[0].tolist(), {node.op_type for node in model.functions[0].node}


@pytest.mark.parametrize(
    ("table", "dtype"),
    [
        ([2**14 >> c for c in range(16)], DType.U32),
        ([1, 0, 0], DType.U8),
        ([5, 2, 1, 0], DType.U8),
        ([3.0, 1.0], DType.F32),
        ([2**31 >> c for c in range(32)], DType.U32),
        ([2**32 - 1 >> c for c in range(32)], DType.U32),
        ([2**62 >> c for c in range(64)], DType.I64),
        ([2.0**-c for c in range(15)] + [0.0], DType.F32),
        ([2.0 ** (100 - c) for c in range(30)], DType.F32),
        ([2.0 ** (-100 - c) for c in range(27)], DType.F32),
    ],
)
def test_tables_of_shifts(table: list[int] | list[float], dtype: DType) -> None:
    assert looked_up(table, dtype)[0] == table


@pytest.mark.parametrize("seed", range(10))
def test_tables_of_exponentials(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        bits, r, width = rng.randint(2, 8), math.exp2(rng.uniform(-3, 6)), rng.randint(8, 26)
        table = [round(2.0 ** (width - 1 - c / r)) for c in range(2**bits - 1)] + [0]
        assert looked_up(table, DType.U32)[0] == table


@pytest.mark.parametrize(
    "table",
    [
        [7, -3, 5], [5, -3], [0], [0, 0], [0.0, 1.0], [math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0],
        [-math.inf, 1.0], [1.0, 0.5, -0.0], [0.75, 0.5], [2**24 + 1, 2**23 + 3], [2.0**-148, 2.0**-149],
    ],
    ids=str,
)  # fmt: skip
def test_tables_of_any_numbers(table: list[int] | list[float]) -> None:
    if any(isinstance(v, float) for v in table):
        expected = [float(np.float32(v)) for v in table]
        np.testing.assert_array_equal(looked_up(table, DType.F32)[0], expected)
    else:
        assert looked_up(table, DType.I64)[0] == table


# Random programs


class Chaos:
    """A random integer program: every result is clamped so far that the next operator can be proved."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scores = self.rng.choice([DType.I8, DType.U8, DType.I16, DType.I32, DType.U32, DType.I64])
        self.t = Trace("chaos", structure=f"s{seed}", scores=self.scores, masked=self.rng.random() < 0.5)
        t = self.t
        self.values: list[Value] = [t.scores, t.index(), t.length()]
        self.conditions: list[Value] = [t.index() < 3] + ([t.valid] if t.valid is not None else [])

    def narrow(self, value: Value, bits: int | None = None) -> Value:
        """A value of few bits in a random type, perhaps with a sign."""
        room = self.rng.choice([3, 7, 15, 20, 31, 33, 40]) if bits is None else bits
        low = 0 if not value.dtype.is_signed or self.rng.random() < 0.5 else -(2**room)
        bounded = self.t.clamp(value, max(low, value.dtype.low), min(2**room - 1, value.dtype.high))
        kinds = [d for d in (DType.I64, DType.I64, DType.I32, DType.U32, DType.I16, DType.U64)
                 if d.low <= low and min(2**room - 1, value.dtype.high) <= d.high]  # fmt: skip
        return self.t.cast(bounded, self.rng.choice(kinds))

    def wide(self, bits: int) -> Value:
        return self.t.cast(self.narrow(self.rng.choice(self.values), bits), DType.I64)

    def step(self) -> None:
        t, rng = self.t, self.rng
        op = rng.choice(
            ["add", "sub", "mul", "divide", "min", "max", "shl", "shr", "lt", "le", "eq", "logic", "select", "cast",
             "lut", "row_max", "row_min", "row_sum", "normalize", "scan", "f32"]
        )  # fmt: skip
        a, b = self.wide(rng.choice([7, 15, 31, 33, 40])), self.wide(rng.choice([7, 15, 31, 33, 40]))
        if op in ("add", "sub", "min", "max"):
            self.values.append(t.apply(op, a, b))
        elif op == "mul":
            self.values.append(self.wide(30) * self.wide(31))
        elif op == "divide":
            self.values.append(t.divide(t.max(a, 0), t.max(b, 1)))
        elif op == "shl":
            self.values.append(self.wide(20) << t.clamp(b, 0, 30))
        elif op == "shr":
            v = self.narrow(a)
            by = t.clamp(t.cast(t.clamp(b, 0, 63), v.dtype), 0, v.dtype.bits - 1)
            self.values.append(v >> (by if rng.random() < 0.5 else rng.randrange(v.dtype.bits)))
        elif op in ("lt", "le", "eq"):
            self.conditions.append(t.apply(op, a, b))
        elif op == "logic":
            p, q = rng.choice(self.conditions), rng.choice(self.conditions)
            self.conditions.append(rng.choice([p & q, p | q, ~p, t.select(p, q, ~q)]))
        elif op == "select":
            self.values.append(t.select(rng.choice(self.conditions), a, b))
        elif op == "cast":
            self.values.append(self.narrow(a))
        elif op == "lut":
            table = [rng.randrange(-(2**33), 2**33) for _ in range(rng.choice([1, 5, 16]))]
            self.values.append(t.lut(t.table(table, DType.I64), t.clamp(a, 0, len(table) - 1)))
        elif op in ("row_max", "row_min", "row_sum"):
            row = a if a.kind is t.scores.kind else a + t.cast(t.index(), DType.I64)
            self.values.append(getattr(t, op)(row))
        elif op == "normalize":
            row = t.cast(t.max(a, 0), DType.I64) + t.cast(t.index(), DType.I64)
            number = t.cast(t.clamp(t.row_max(row), 1, 2**32 - 1), DType.U32)
            self.values.extend(t.normalize(number))
        elif op == "scan":
            row = a if a.kind is t.scores.kind else a + t.cast(t.index(), DType.I64)
            (last,), (running,) = t.scan(
                [t.const(1, DType.I64)], [row], lambda s, e: ([t.clamp(s - (e >> 1), -(2**41), 2**41)], [t.max(s, e)]),
                [(-(2**41), 2**41)],
            )  # fmt: skip
            self.values.extend((last, running))
        else:
            scaled = t.rint(t.cast(a, DType.F32) * t.const(rng.choice([0.001, 0.5, 3.7]), DType.F32))
            self.values.append(t.cast(t.clamp(scaled, -(2.0**40), 2.0**40), DType.I64))

    def program(self) -> Program:
        for _ in range(14):
            self.step()
        t = self.t
        rows = [v for v in self.values if v.kind is t.scores.kind]
        scalars = [v for v in self.values if v.kind is not t.scores.kind]
        more = {f"value{i}": v for i, v in enumerate((*self.values, *self.conditions))}
        return t.program(weights=rows[-1], normalizer=scalars[-1], **more)


@pytest.mark.quick_cases(15)
@pytest.mark.parametrize("seed", slow_but(range(60), range(30)))
def test_random_programs_are_equal_to_the_bit(seed: int) -> None:
    chaos = Chaos(seed)
    program = chaos.program()
    rng = np.random.default_rng(seed)
    scores = program.scores
    for shape in ((4, 7), (2, 1, 3, 5)):
        low, high = scores.low, scores.high
        wide = rng.integers(low, high, size=shape, endpoint=True, dtype=scores.numpy)
        few = rng.integers(max(low, -3), 4, size=shape).astype(scores.numpy)
        x = np.where(rng.random(shape) < 0.5, wide, few)
        valid = rng.random(shape) < 0.6 if program.masked else None
        names = list(program.outputs)
        results = list(everywhere(program, x, names, valid=valid, max_length=16))
        for backend, other in results[1:]:
            for name in names:
                expected = np.broadcast_to(results[0][1][name], other[name].shape)
                assert other[name].shape == results[0][1][name].shape, (backend, name)
                np.testing.assert_array_equal(other[name], expected, err_msg=f"{backend} {name}")
