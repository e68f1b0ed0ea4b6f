"""Sweeps on a cluster: real schedulers and workers on the loopback interface, which die, hang, or do not fit."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import InputError, UsageError
from softq.limits import limited
from softq.plans import Plan
from softq.sweeps import Selection, Sweep, Task, run
from softq.sweeps.distributed import connection, worker
from softq.sweeps.distributed.compatibility import asked_names, unfitness, versions_here
from softq.sweeps.distributed.scheduler import Scheduler
from softq.sweeps.distributed.shards import LEAST, MOST, Shard, group, partition
from softq.sweeps.distributed.worker import Answer, UnfitError, Workspace
from softq.sweeps.distributed.worker_state import Costs, Unit, Worker
from softq.sweeps.evaluate.evaluator import open_subject
from softq.sweeps.plan.search import find_plan
from softq.sweeps.planner import Planner
from softq.sweeps.records import OUTCOMES, STUDY, read
from tests.amount import amount
from tests.test_sweep import IMAGES, LM, TEXT, VIT, plain

# 12 batches, hence 3 shards; 4 settings.
GIVEN: dict[str, Any] = {
    "metric": "kl", "methods": "deferred-log,uniform", "bits": "3,4", "samples": 94, "batch": 8, "threads": 1
}  # fmt: skip


def given(**more: Any) -> dict[str, Any]:
    return GIVEN | more


class Cluster:
    """A scheduler, and workers that tests add."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0
        file = folder / "scheduler.json"
        self._scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)
        )  # fmt: skip
        for _ in range(300):
            if file.exists():
                break
            time.sleep(0.1)
        self.address = str(json.loads(file.read_text())["address"])

    def _start(self, what: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{what}", *options, "--no-dashboard"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, env=os.environ | env,
        )  # fmt: skip

    @contextmanager
    def workers(self, *threads: int, **env: str) -> Generator[list[subprocess.Popen[bytes]]]:
        some = [
            self._start("dask_worker", self.address, "--nthreads", str(one), "--no-nanny", "--local-directory",
                        str(self.folder), **env)
            for one in threads
        ]  # fmt: skip
        self._count += len(some)
        try:
            with distributed.Client(self.address, set_as_default=False) as client:
                client.wait_for_workers(self._count, timeout=60)
            yield some
        finally:
            self._count -= len(some)
            for one in some:
                end(one)

    def close(self) -> None:
        end(self._scheduler)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    started = Cluster(tmp_path / "cluster")
    yield started
    started.close()


def same(one: Sweep, other: Sweep) -> None:
    """All bits of all values are equal, in the same order."""
    assert plain(one.outcomes) == plain(other.outcomes)
    assert repr(one.study.reference) == repr(other.study.reference)
    assert (one.study.samples, one.study.sites) == (other.study.samples, other.study.sites)


def test_every_kind_of_metric_has_the_bits_of_one_process(tmp_path: Path, cluster: Cluster) -> None:
    with np.load(IMAGES) as arrays:
        digits = arrays["label.digit"][:40]
        np.savez(tmp_path / "pairs.npz", **{
            "images": arrays["images"][:40], "label.same": (digits[:, None] == digits[None]).astype(np.float32)
        })  # pyright: ignore # fmt: skip
    cases: list[tuple[Path, Path, dict[str, Any]]] = [
        (VIT, IMAGES, GIVEN),  # pairs of outputs
        (VIT, IMAGES, given(metric="top1-accuracy", bits="3")),  # a mean over the samples
        (LM, TEXT, given(metric="perplexity", samples=9, batch=1, bits="3")),  # exp of a mean of tokens
        (VIT, tmp_path / "pairs.npz", given(metric="spearman", batch=4, bits="2")),  # pairs of samples
    ]
    cases = amount(cases[::2], cases)
    with cluster.workers(2, 1):
        for number, (model, data, settings) in enumerate(cases):
            one = run(model, data, out=tmp_path / f"one{number}", **settings)
            many = run(model, data, out=tmp_path / f"many{number}", scheduler=cluster.address, **settings)
            same(many, one)
            assert {path.name for path in (tmp_path / f"many{number}").iterdir()} == {STUDY, OUTCOMES}
        # A worker hears that nobody needs its workspace any more, and removes it, a moment later.
        until = time.monotonic() + 10
        while left := [path for path in cluster.folder.rglob("softq-*") if path.is_dir()]:
            assert time.monotonic() < until, f"workers have kept scratch files: {left}"
            time.sleep(0.1)


@pytest.mark.slow
def test_a_plan_is_searched_by_the_workers(cluster: Cluster) -> None:
    task = Task(VIT, IMAGES, "top1-accuracy", Selection(batch=6), samples=60, threads=1)
    search: dict[str, Any] = {"max_drop": "5%", "methods": "deferred-log", "bits": "3"}
    one = find_plan(task, **search)
    with cluster.workers(1, 1):
        many = find_plan(replace(task, scheduler=cluster.address), **search)
    assert many.plan == one.plan
    assert (many.gate, many.bits) == (one.gate, one.bits)
    tried = [[(plan.name, plan.searched.loss) for plan in found.tried] for found in (one, many)]
    assert tried[0] == tried[1]
    assert (many.verified.metric, many.verified.loss) == (one.verified.metric, one.verified.loss)
    assert (many.searched.metric, many.searched.loss) == (one.searched.metric, one.searched.loss)


class Interfering:
    """Sends signals to a worker when so many units are done."""

    def __init__(self, process: subprocess.Popen[bytes], **at: int) -> None:
        self.process, self.at, self.count = process, {count: name for name, count in at.items()}, 0

    def __call__(self, step: str, done: int, total: int | None) -> None:
        if step == "sweep":
            self.count += 1
            name = self.at.get(self.count)
            if name is not None:
                self.process.send_signal(getattr(signal, name))


def test_a_worker_that_is_killed_midway(tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    one = run(VIT, IMAGES, out=tmp_path / "one", **GIVEN)
    with cluster.workers(1, 1) as workers:
        # Stopped first: so it surely has a unit when it dies.
        progress = Interfering(workers[0], SIGSTOP=2, SIGKILL=4)
        many = run(VIT, IMAGES, out=tmp_path / "many", scheduler=cluster.address, progress=progress, **GIVEN)
    same(many, one)
    assert progress.count == 12
    lines = [text for text in caplog.messages if "died" in text]
    assert len({line.partition(" died while it measured ")[0] for line in lines}) == 1, "one worker has died"
    assert all(" on samples " in line for line in lines)


@pytest.mark.slow
def test_a_worker_that_hangs_is_reported(tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    one = run(VIT, IMAGES, out=tmp_path / "one", **GIVEN)
    with cluster.workers(1, 1) as workers:
        progress = Interfering(workers[0], SIGSTOP=2)
        many = run(
            VIT, IMAGES, out=tmp_path / "many", scheduler=cluster.address, timeout=4, progress=progress, **GIVEN
        )  # fmt: skip
    same(many, one)
    line = next(text for text in caplog.messages if "gives no answer at" in text)
    assert "worker tcp://127.0.0.1:" in line
    assert any(f"at {name} bits={bits} on samples" in line for name in ("deferred-log", "uniform") for bits in (3, 4))
    assert "another one measures it" in line


@pytest.mark.slow
def test_when_all_workers_hang_what_is_done_stays(tmp_path: Path, cluster: Cluster) -> None:
    with cluster.workers(1) as workers:
        stopping = Interfering(workers[0], SIGSTOP=4)
        with pytest.raises(InputError, match="no worker answers"):
            run(VIT, IMAGES, out=tmp_path / "many", progress=stopping, **given(timeout=6, scheduler=cluster.address))
        assert 1 <= len(read(tmp_path / "many")[1]) < 4
        workers[0].send_signal(signal.SIGCONT)
        many = run(VIT, IMAGES, out=tmp_path / "many", **given(scheduler=cluster.address))
    same(many, run(VIT, IMAGES, out=tmp_path / "one", **GIVEN))


def fake(folder: Path, text: str) -> dict[str, str]:
    """An environment in which softq is another one."""
    (folder / "softq").mkdir(parents=True)
    (folder / "softq/__init__.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def test_workers_that_do_not_fit_are_left_out(
    tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    other = fake(tmp_path / "other", "__version__ = '0.0.9'\n")
    none = fake(tmp_path / "none", "raise ImportError('there is no softq')\n")
    (tmp_path / "seen_here.py").write_text(
        f"import numpy as np\ndef items():\n    with np.load({str(IMAGES)!r}) as a:\n"
        "        yield {name: a[name][:32] for name in a.files}\n"
    )
    out = tmp_path / "out"

    def sweep(*more: str) -> tuple[int, str]:
        caplog.clear()
        result = CliRunner().invoke(main, [
            "sweep", str(VIT), "--metric", "kl", "--methods", "exact", "--threads", "1", "--out", str(out), "--force",
            "--scheduler", cluster.address, *more,
        ])  # fmt: skip
        return result.exit_code, result.stderr + "\n".join(caplog.messages)

    images = ["--data", str(IMAGES), "--samples", "8"]
    with cluster.workers(1, **other):
        code, said = sweep(*images)
        assert code == 2
        assert "it has softq 0.0.9 (here" in said
        assert "install there: softq==" in said
        with cluster.workers(1):
            code, said = sweep(*images)
            assert code == 0, said
            assert said.count("left out: worker tcp://127.0.0.1:") == 1
    with cluster.workers(1, **none):
        code, said = sweep(*images)
        assert (code, "there is no softq); install there: softq==" in said) == (2, True), said
    with cluster.workers(1), pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        code, said = sweep("--data", "seen_here:items")
        assert code == 2
        assert "cannot import seen_here" in said
        assert "must lie on every worker's machine under the same path" in said


class OneProcess:
    """A client whose workers are addresses: what they measure is their own address."""

    status = "running"

    def __init__(self) -> None:
        self.there, self.other_asked = {"first": 1}, threading.Event()

    def nthreads(self, **_: object) -> dict[str, int]:
        return dict(self.there)

    def submit(self, call: Callable[..., Any], *given: Any, workers: list[str], **_: object) -> Any:
        if call is not Workspace.measure:
            return Future(lambda: versions_here() if call is eval else None)
        if workers == ["other"]:
            self.other_asked.set()
        elif "other" in self.there:
            return Future(lambda: self.other_asked.wait() and Answer((), workers[0], 0.0, 0.0, 0.0))
        return Future(lambda: Answer((), workers[0], 0.0, 0.0, 0.0))


@dataclass
class Future:
    give: Callable[[], Any]

    def result(self, **_: object) -> Any:
        return self.give()


def test_a_worker_whose_bits_differ_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = OneProcess()
    workspace = Workspace(Task("m", "d", "kl", Selection()), (0, None), "", "")
    shards, plan = [Shard(number, 4 * number, number, number + 1, "") for number in range(3)], Plan("", "", "", ())
    with closing(Scheduler(client, workspace, None)) as scheduler:
        reference = list(scheduler.answers([Unit(-1, "the float model", shard, None) for shard in shards]))
        client.there["other"] = 1
        time.sleep(0.5)
        found = list(scheduler.answers([Unit(0, "a setting", shard, plan) for shard in shards]))
    for answers in (reference, found):
        assert [answer.digest for _, answer in answers if isinstance(answer, Answer)] == ["first"] * 3
    (line,) = (text for text in caplog.messages if "left out" in text)
    assert "worker other: on samples" in line
    assert "does not give the bits of that on worker first" in line


def test_another_model_and_other_data_on_a_worker(tmp_path: Path) -> None:
    """What a worker says of files that changed between the client's look and its own; in this process."""
    task = Task(str(VIT), str(IMAGES), "kl", Selection(batch=8), samples=40, threads=1)
    planner, subject = Planner(VIT, Selection()), task.subject(task.open().runner())
    first, second = partition(subject)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "_worker", lambda: (str(tmp_path), 1))
        workspace = pickle.loads(pickle.dumps(Workspace(task, (0, 40), planner.graph, planner.weights)))
        assert not any(tmp_path.iterdir())
        assert len(workspace.measure(second, None).parts) == 1
        with pytest.raises(UnfitError, match=r"other data at .* \(samples 1 to 32\)"):
            workspace.measure(replace(first, digest=second.digest), None)
        with pytest.raises(UnfitError, match="another model at"):
            Workspace(task, (0, 40), planner.graph, "0").measure(second, None)
        assert any(tmp_path.iterdir())
        del workspace
        gc.collect()
    assert not any(tmp_path.iterdir())


def test_limits_of_the_caller_hold_on_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(str(VIT), str(IMAGES), "kl", Selection(batch=8), samples=40, threads=1)
    planner, subject = Planner(VIT, Selection()), task.subject(task.open().runner())
    monkeypatch.setattr(worker, "_worker", lambda: (str(tmp_path), 1))
    with limited(nodes=5):
        sent = pickle.dumps(Workspace(task, (0, 40), planner.graph, planner.weights))
    with pytest.raises(UnfitError, match="--limit-nodes"):
        pickle.loads(sent).measure(partition(subject)[0], None)


def test_shards_depend_on_data_and_batch_alone(tmp_path: Path) -> None:
    with np.load(IMAGES) as arrays:
        cut = {name: arrays[name][:70] for name in arrays.files}
    (tmp_path / "files").mkdir()
    for number, (start, stop) in enumerate([(0, 23), (23, 24), (24, 70)]):
        part = {name: array[start:stop] for name, array in cut.items()}
        np.savez(tmp_path / f"files/{number}.npz", **part)  # pyright: ignore
    task = Task(VIT, tmp_path / "files", "kl", Selection(batch=5), threads=1)
    runner = task.open().runner()
    shards = partition(task.subject(runner))
    # Batches end where files do: 5 of the first file, 1 of the second, 10 of the third.
    assert [(one.first, one.start, one.stop) for one in shards] == [(0, 0, 20), (4, 20, 34), (8, 34, 54), (12, 54, 70)]
    assert len({one.digest for one in shards}) == 4
    subject = open_subject(runner, tmp_path / "files", "kl", batch=5)
    for one in shards:
        sizes = [batch.samples for batch in subject.data.between(one.start, one.stop).batches(5)]
        assert len(sizes) == LEAST
        assert sum(sizes) == one.stop - one.start


def test_there_are_never_too_many_shards() -> None:
    for count in (1, 2, MOST, MOST + 1, 2 * MOST, 1000):
        shards = group([(3, str(number)) for number in range(LEAST * count)])
        assert len(shards) <= MOST
        assert [one.stop for one in shards[:-1]] == [one.start for one in shards[1:]]
        assert (shards[0].start, shards[-1].stop) == (0, 3 * LEAST * count)
        assert {one.first - other.first for one, other in zip(shards[1:], shards, strict=False)} <= {
            LEAST * -(-count // MOST)
        }


def test_other_versions() -> None:
    here = versions_here()
    assert unfitness(here, None) is None
    assert unfitness(here | {"python": here["python"] + "1"}, None) is None
    told = unfitness(here | {"python": "3.0.1"}, None)
    assert told is not None
    assert "it has Python 3.0.1" in told
    for name in asked_names():
        told = unfitness(here | {name: "0"}, None)
        assert told is not None
        assert f"it has {name} 0 (here {here[name]})" in told


def test_a_worker_gets_what_costs_it_least() -> None:
    shards = [Shard(number, 4 * number, 0, 1, "") for number in range(2)]
    plan = Plan("", "", "", ())
    units = [Unit(setting, "", shard, plan) for setting in range(2) for shard in shards]
    answer = Answer((), "", preparing=2.0, opening=0.5, seconds=1.0)
    costs = Costs()
    idle, other = Worker("idle", 1), Worker("other", 1)
    other.opened.append(0)
    assert costs.cheapest(units, idle, [idle, other]) is units[2], "a setting that nobody has begun"
    for one in units[:2]:
        costs.learn(one, answer)
    idle.kept.add(1)
    assert costs.cheapest(units, idle, [idle, other]) is units[3], "its own shard, although a session must be opened"
    idle.opened.append(0)
    assert costs.cheapest(units, idle, [idle, other]) is units[1]
    assert costs.cheapest([units[0], units[3]], idle, [idle, other]) is units[3], "preparing costs 2 s, opening 0.5 s"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "tcp://127.0.0.1:1", "workers": 2}, "give one"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "no scheduler answers at 'tcp://127.0.0.1:1'"),
        ({"scheduler": "nonsense://x"}, "no scheduler answers at 'nonsense://x'"),
        ({"timeout": 5}, "this process does not watch itself"),
        ({"timeout": 0, "workers": 2}, "timeout is 0"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_bad_usage(tmp_path: Path, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_REACH", 0.5)
    with pytest.raises(UsageError, match=message):
        run(VIT, IMAGES, out=tmp_path / "out", **given(**options))


def test_a_model_in_memory_cannot_be_sent(tmp_path: Path) -> None:
    items: Sequence[dict[str, Any]] = [{"images": np.zeros((1, 1, 28, 28), np.uint8)}]
    with pytest.raises(UsageError, match="workers load the data themselves"):
        run(VIT, items, out=tmp_path / "out", metric="kl", workers=2)
