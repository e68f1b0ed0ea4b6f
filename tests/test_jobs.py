"""Work on several cores: the same results with any number of them, no error lost, nobody waits for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import pytest
from onnx import parser

import softq
from softq.errors import UsageError
from softq.jobs import Later, Results, jobs

MODEL = """<ir_version: 10, opset_import: ["": 18]>
g (float[M, N] x, float[N, 24] w) => (float[M, 24] z, float[M, N] e)
<int64 one = {1}> {
    y = Softmax (x)
    z = MatMul (y, w)
    a = Sqrt (x)
    b = Add (a, y)
    e = CumSum (b, one)
}"""


def numbered(seen: list[str], number: int) -> int:
    seen.append(threading.current_thread().name)
    time.sleep(0.002)
    return number * number


@pytest.mark.parametrize("count", [1, 2, 5, 100])
def test_results_stand_in_the_order_of_the_functions(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", str(count))
    seen: list[str] = []
    results = Results([partial(numbered, seen, i) for i in range(40)], list(range(40)))
    assert len(results) == 40
    assert results[3] == 9
    assert results[1:3] == (1, 4)
    assert list(results) == [i * i for i in range(40)]
    assert len(seen) == 40
    assert 1 <= len(set(seen)) <= count
    assert list(Results[int]([], [])) == []


def test_the_longest_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", "1")
    begun: list[int] = []
    results = Results([partial(begun.append, i) for i in range(3)], [1, 3, 2])
    assert begun == []
    assert results[0] is None
    assert begun == [1, 2, 0]


def test_others_work_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", "2")
    called = threading.Event()
    results = Results([called.set, called.set], [1, 1])
    assert called.wait(30)
    assert len(results) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_reaches_who_reads_it(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", str(count))
    works: list[Callable[[], int]] = [lambda: 1, lambda: 1 // 0, lambda: [1][2], lambda: 4]
    results = Results(works, [1, 1, 2, 1])
    with pytest.raises(ZeroDivisionError):
        list(results)
    with pytest.raises(IndexError):
        results[2]
    assert results[3] == 4


@pytest.mark.parametrize("count", [1, 2])
def test_a_sequence_made_later(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", str(count))
    maker = list[threading.Thread]()
    begun = threading.Event()

    def make() -> Sequence[int]:
        maker.append(threading.current_thread())
        begun.set()
        return Results([lambda: 1, lambda: 2], [1, 1])

    later = Later(make)
    assert begun.wait(30 if count > 1 else 0) == (count > 1)
    assert (list(later), len(later), later[1], tuple(later[:1])) == ([1, 2], 2, 2, (1,))
    assert len(maker) == 1
    assert (maker[0] is threading.current_thread()) == (count == 1)
    with pytest.raises(ZeroDivisionError):
        list(Later(lambda: [1 // 0]))


@pytest.mark.parametrize("count", [1, 3])
def test_an_interruption_ends_all(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", str(count))
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    def interrupted() -> None:
        raise KeyboardInterrupt

    results = Results([interrupted] * 50, [1] * 50)
    with pytest.raises(KeyboardInterrupt):
        results[0]
    # Another thread began it and was interrupted, too, or nobody did any more.
    with pytest.raises((KeyboardInterrupt, CancelledError)):
        results[49]


def test_what_nobody_can_ask_for_is_left_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", "2")
    go, begun = threading.Event(), list[int]()

    def wait(number: int) -> None:
        begun.append(number)
        go.wait(30)

    results = Results([partial(wait, i) for i in range(9)], [1] * 9)
    workers = [thread for thread in threading.enumerate() if thread.name == "softq"]
    del results
    go.set()
    for worker in workers:
        worker.join(30)
    assert len(begun) <= 1


def test_no_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setenv("SOFTQ_JOBS", "4")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = threading.stack_size()
    assert list(Results([partial(numbered, [], i) for i in range(4)], [1] * 4)) == [0, 1, 4, 9]
    assert threading.stack_size() == before


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_JOBS", "")
    assert jobs() == len(os.sched_getaffinity(0))
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("SOFTQ_JOBS", text)
        with pytest.raises(UsageError, match=r"SOFTQ_JOBS is '.*'; expected a number of threads, 1 or more"):
            jobs()


def test_an_artifact_is_the_same_however_many_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    monkeypatch.setenv("SOFTQ_CACHE_SIZE", "0")
    built: list[dict[str, bytes]] = []
    for count in (1, 7):
        monkeypatch.setenv("SOFTQ_JOBS", str(count))
        folder = softq.build(parser.parse_model(MODEL), tmp_path / str(count), target="cpu").folder
        built.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(built[0]["kernels.o"]) > 1000
    assert built[0] == built[1]
