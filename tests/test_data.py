"""Data in its three forms, and an error that names the array for each way in which it can be wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softq.data import Array, TensorSpec, look_at, open_data
from softq.errors import InputError, UsageError

X = TensorSpec("x", "float32", ("batch", "seq"))
MASK = TensorSpec("mask", "int64", ("batch", "seq"))
SPECS = (X, MASK)


def sample(count: int = 5, length: int = 3) -> dict[str, Array]:
    x = np.arange(count * length, dtype=np.float32).reshape(count, length)
    return {"x": x, "mask": np.ones((count, length), np.int64), "label.y": np.arange(count)}


def write(path: Path, arrays: dict[str, Array]) -> str:
    np.savez(path, allow_pickle=True, **arrays)
    return str(path)


def test_npz_in_batches(tmp_path: Path) -> None:
    data = open_data(write(tmp_path / "a.npz", sample()), SPECS)
    batches = list(data.batches(2))
    assert [b.samples for b in batches] == [2, 2, 1]
    assert (data.samples, list(data.labels), data.sizes) == (5, ["y"], {"seq": 3})
    np.testing.assert_array_equal(np.concatenate([b.inputs["x"] for b in batches]), sample()["x"])
    np.testing.assert_array_equal(np.concatenate([b.labels["y"] for b in batches]), np.arange(5))
    assert [b.samples for b in data.batches()] == [5], "a batch is one file at most"


def test_a_scalar_has_one_value_for_all_samples_of_a_file(tmp_path: Path) -> None:
    scalar = TensorSpec("flag", "bool", ())
    for name, value in (("a", True), ("b", False)):
        write(tmp_path / f"{name}.npz", sample(5) | {"flag": np.array(value)})
    for source in (tmp_path, [sample(5) | {"flag": np.array(True)}, sample(5) | {"flag": np.bool_(False)}]):
        data = open_data(source, [scalar, *SPECS])
        batches = list(data.batches(3))
        assert [batch.samples for batch in batches] == [3, 2, 3, 2]
        assert [batch.inputs["flag"].tolist() for batch in batches] == [True, True, False, False]
        assert [batch.inputs["flag"].tolist() for batch in data.between(4, 7).batches(3)] == [True, False]
    assert [
        batch.inputs["flag"].tolist() for batch in open_data(tmp_path, [scalar, *SPECS]).spread(1, 3).batches(3)
    ] == [True]


def test_a_folder_is_read_in_the_order_of_names_and_shapes_may_differ(tmp_path: Path) -> None:
    for name, count, length in (("b", 2, 7), ("a", 3, 4), ("c", 1, 1)):
        write(tmp_path / f"{name}.npz", sample(count, length))
    (tmp_path / "README.txt").write_text("not data")
    (tmp_path / "._a.npz").write_text("left by another system")
    data = open_data(tmp_path, SPECS)
    assert data.samples == 6
    assert [b.inputs["x"].shape for b in data.batches(2)] == [(2, 4), (1, 4), (2, 7), (1, 1)]


def test_a_function_is_found_in_the_working_directory_and_called_for_each_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows_here.py").write_text(
        "import numpy as np\n"
        "def rows():\n"
        "    for n in (2, 3):\n"
        "        yield {'x': np.ones((n, 4), np.float32), 'mask': np.ones((n, 4), np.int64)}\n"
        "def bad():\n"
        "    raise ValueError('no rows\\ntoday')\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    data = open_data("rows_here:rows", SPECS)
    assert data.samples is None
    for _ in range(2):
        assert [b.samples for b in data.batches(2)] == [2, 2, 1]
    with pytest.raises(InputError, match=r"raised ValueError: no rows$"):
        open_data("rows_here:bad", SPECS)
    with pytest.raises(UsageError, match="no function 'number'"):
        open_data("rows_here:number", SPECS)
    with pytest.raises(UsageError, match="cannot import not_there"):
        open_data("not_there:rows", SPECS)


def test_a_function_of_a_file_finds_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["/nowhere"])
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"lengths_{folder}.py").write_text(f"LENGTH = {len(folder) + (folder == 'two')}\n")
        (tmp_path / folder / "types.py").write_text(  # as a module of Python's own
            f"import numpy as np\nfrom lengths_{folder} import LENGTH\ncalls = [0]\n"
            "def rows():\n    calls[0] += 1\n    n = LENGTH + 10 * calls[0]\n"
            "    return [{'x': np.ones((n, 4), 'f'), 'mask': np.ones((n, 4), 'l'), 'label.y': np.ones(n)}]\n"
        )
    for folder, length in (("one", 3), ("two", 4)):
        name = str(tmp_path / folder / "types.py:rows")
        assert [part["x"].shape for part in look_at(name)] == [(10 + length, 4)]
        # It is the same module the second time.
        assert [part["label.y"].shape for part in look_at(name)] == [(20 + length,)]
    assert next(open_data(str(tmp_path / "one/types.py:rows"), SPECS).batches(2)).samples == 2
    with pytest.raises(UsageError, match=r"no such file: .*none\.py"):
        open_data(str(tmp_path / "none.py:rows"), SPECS)
    (tmp_path / "broken.py").write_text("raise ValueError('not\\nthis')\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"cannot import .*broken\.py: not$"):
            open_data(str(tmp_path / "broken.py:rows"), SPECS)


def test_what_data_hold_before_a_model_is_there(tmp_path: Path) -> None:
    for name, length in (("a", 3), ("b", 5)):
        write(tmp_path / f"{name}.npz", sample(length=length))
    assert [{key: header.shape for key, header in part.items()} for part in look_at(tmp_path)] == [
        {"x": (5, length), "mask": (5, length), "label.y": (5,)} for length in (3, 5)
    ]
    assert [str(part["x"]) for part in look_at([sample(2)])] == ["float32[2, 3]"]
    with pytest.raises(InputError, match="can be read only once"):
        look_at(iter([sample()]))
    with pytest.raises(InputError, match="yields no data"):
        look_at([])


def test_an_iterable_is_read_and_an_iterator_only_once() -> None:
    assert sum(b.samples for b in open_data([sample(2), sample(4, 9)], SPECS).batches()) == 6
    data = open_data(iter([sample(2), sample(3)]), SPECS)
    assert sum(b.samples for b in data.batches()) == 5
    with pytest.raises(InputError, match="only once"):
        list(data.batches())


def test_only_one_file_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    from softq.data import _files as module

    for name in "abc":
        write(tmp_path / f"{name}.npz", sample())
    alive: list[weakref.ref[Array]] = []
    load = module._read_arrays

    def watched(path: Path) -> dict[str, Array]:
        gc.collect()
        assert not [ref for ref in alive if ref() is not None], "an earlier file is still in memory"
        arrays = load(path)
        alive.extend(weakref.ref(array) for array in arrays.values())
        return arrays

    monkeypatch.setattr(module, "_read_arrays", watched)
    kept = list(open_data(tmp_path, SPECS).batches(2))
    assert len(kept) == 9
    for batch in kept:
        assert batch.inputs["x"].base is None, "a view keeps its whole file"
        assert batch.labels["y"].base is None
    assert len(alive) == 9


def without(name: str) -> dict[str, Array]:
    return {k: v for k, v in sample().items() if k != name}


BAD: list[tuple[str, dict[str, Array], str]] = [
    ("missing", without("mask"), r"no array 'mask'; the model expects int64\[batch, seq\]"),
    ("unknown", {**sample(), "y": np.ones(5)}, r"unknown array 'y'; the model takes 'x', 'mask'"),
    ("nameless-label", {**sample(), "label.": np.ones(5)}, "unknown array 'label.'"),
    ("rank", {**sample(), "x": np.ones((5, 3, 1), np.float32)}, r"array 'x' is float32\[5, 3, 1\]; the model expects"),
    ("symbol", {**sample(), "mask": np.ones((5, 4), np.int64)}, r"'mask' has 'seq' = 4 .* array 'x' has 'seq' = 3"),
    (
        "type",
        {**sample(), "x": np.ones((5, 3))},
        r"array 'x' is float64; the model expects float32, and nothing is",
    ),
    ("byte-order", {**sample(), "x": np.ones((5, 3), ">f4")}, r"array 'x' is >f4; the model expects float32"),
    ("count", {**sample(), "label.y": np.arange(4)}, r"array 'label.y' has 4 samples; 'x' has 5"),
    ("scalar", {**sample(), "label.y": np.array(3)}, r"array 'label.y' is a scalar"),
    ("no-samples", sample(0), r"array 'x' is empty: float32\[0, 3\]"),
    ("no-elements", sample(5, 0), r"array 'x' is empty: float32\[5, 0\]"),
]


@pytest.mark.parametrize(("arrays", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_an_array_that_does_not_fit_is_named(arrays: dict[str, Array], message: str, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.npz", sample()), write(tmp_path / "b.npz", arrays)
    with pytest.raises(InputError, match=message) as error:
        open_data(bad, SPECS)
    assert str(error.value).startswith(bad)
    with pytest.raises(InputError, match=message):
        open_data(tmp_path, SPECS)  # The second file is checked before the first one runs.
    with pytest.raises(InputError, match=message):
        open_data([arrays], SPECS)
    with pytest.raises(InputError, match=r"item 1.*" + message):
        list(open_data([sample(), arrays], SPECS).batches())
    assert open_data(good, SPECS).samples == 5


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Mine:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("unpickled",))

    array = np.empty(5, object)
    array[:] = Mine()
    with pytest.raises(InputError, match=r"array 'x' contains pickled objects, which are never loaded"):
        open_data(write(tmp_path / "a.npz", {**without("x"), "x": array}), SPECS)
    with pytest.raises(InputError, match="'x' holds Python objects"):
        open_data([{**without("x"), "x": array}], SPECS)


def test_fixed_shapes(tmp_path: Path) -> None:
    spec = TensorSpec("x", "float32", (4, 3))
    path = write(tmp_path / "a.npz", {"x": np.ones((8, 3), np.float32)})
    data = open_data(path, [spec])
    assert [b.samples for b in data.batches()] == [4, 4]
    with pytest.raises(UsageError, match="batch is 3, but the model's inputs are fixed at 4"):
        list(data.batches(3))
    with pytest.raises(InputError, match=r"has 6 samples; the model takes exactly 4 at a time, which leaves 2"):
        open_data([{"x": np.ones((6, 3), np.float32)}], [spec])
    with pytest.raises(InputError, match=r"array 'x' is float32\[8, 2\]; the model expects float32\[4, 3\]"):
        open_data([{"x": np.ones((8, 2), np.float32)}], [spec])
    with pytest.raises(
        InputError, match=r"array 'x' is float32\[8, 3\]; the model expects float32\[\], one array for all samples"
    ):
        open_data(path, [TensorSpec("x", "float32", ())])
    with pytest.raises(UsageError, match="batch is 0"):
        open_data([{"x": np.ones((6, 3), np.float32)}], [TensorSpec("x", "float32", (None, 3))]).batch_size(0)


def test_labels(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", sample())
    write(tmp_path / "b.npz", without("label.y"))
    with pytest.raises(InputError, match=r"b.npz: no array 'label.y', which the data before it has"):
        open_data(tmp_path, SPECS)
    with pytest.raises(InputError, match=r"item 1: array 'label.y' is not in the data before it"):
        list(open_data([without("label.y"), sample()], SPECS).batches())


def test_nan_is_refused_where_asked() -> None:
    bad = sample()
    bad["x"] = np.where(bad["x"] == 7, np.float32(np.nan), bad["x"])
    assert list(open_data([bad], SPECS).batches())
    with pytest.raises(InputError, match=r"array 'x' contains 1 NaN, the first at \[2, 1\]; expected none"):
        list(open_data([bad], SPECS, reject_nan=True).batches())


def test_files_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        open_data(tmp_path / "none.npz", SPECS)
    with pytest.raises(InputError, match=r"the folder has no \.npz files"):
        open_data(tmp_path, SPECS)
    text = tmp_path / "text.npz"
    text.write_text("hello")
    with pytest.raises(InputError, match=r"not a \.npz file"):
        open_data(text, SPECS)
    program = tmp_path / "data.py"
    program.write_text("def samples(): ...")
    with pytest.raises(InputError, match=r"a Python file; .* as in .*data\.py:samples"):
        open_data(program, SPECS)
    whole = Path(write(tmp_path / "whole.npz", sample())).read_bytes()
    cut = tmp_path / "cut.npz"
    for size in range(0, len(whole), 37):
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut\.npz"):
            open_data(cut, SPECS)
    flipped = tmp_path / "flipped.npz"
    flipped.write_bytes(whole.replace(np.float32(7).tobytes(), np.float32(8).tobytes()))
    with pytest.raises(InputError, match=r"flipped\.npz.*CRC"):
        list(open_data(flipped, SPECS).batches())
    foreign = tmp_path / "foreign.npz"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InputError, match=r"contains 'notes\.txt', which is not an array"):
        open_data(foreign, SPECS)


def test_a_header_that_promises_more_than_there_is_allocates_nothing(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00"
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3), }\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header + len(text).to_bytes(2, "little") + text + b"\0" * 64)
    with pytest.raises(InputError, match=r"its header says float32.*, its size says otherwise"):
        open_data(tmp_path / "a.npz", [X])


def test_items_of_the_wrong_kind() -> None:
    def lists() -> Iterator[dict[str, Array]]:
        yield {"x": [[1.0]]}  # pyright: ignore[reportReturnType]

    with pytest.raises(InputError, match=r"'x' is a list; expected a numpy array"):
        open_data(lists(), [X])
    with pytest.raises(InputError, match="yields no data"):
        open_data([], [X])
    with pytest.raises(InputError, match="item 0 is a list; expected a dict"):
        open_data([[1]], [X])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="put the one dict into a list"):
        open_data(sample(), [X])  # pyright: ignore[reportArgumentType]


def test_a_part_of_the_data_reads_only_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(3, dtype=np.float32)[:, None] + 10 * number)
    read: list[str] = []

    def spied(path: Path) -> dict[str, Array]:
        read.append(path.name)
        with np.load(path) as arrays:
            return dict(arrays)

    monkeypatch.setattr("softq.data._files._read_arrays", spied)
    data = open_data(tmp_path, [TensorSpec("x", "float32", ("N", 1))]).between(0, 11).between(4, 9)
    assert [batch.inputs["x"][:, 0].tolist() for batch in data.batches(2)] == [[11, 12], [20, 21], [22]]
    assert read == ["1.npz", "2.npz"]
