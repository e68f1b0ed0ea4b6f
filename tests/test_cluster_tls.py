"""A cluster whose processes know one another by certificates, made as docs/cluster.md says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import InputError, UsageError
from softq.sweeps import Tls, run
from softq.sweeps.distributed import connection
from tests.test_sweep import IMAGES, VIT

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")

CLUSTER = Path(__file__).resolve().parent.parent / "docs" / "cluster.md"
GIVEN: dict[str, Any] = {"metric": "kl", "methods": "uniform", "bits": "3", "samples": 8, "batch": 4, "threads": 1}


def credentials(folder: Path) -> Tls:
    """Return a certificate that is its own authority."""
    folder.mkdir()
    command = re.search(r"^openssl req .*$", CLUSTER.read_text("utf-8"), re.MULTILINE)
    assert command is not None
    subprocess.run(shlex.split(command[0]), cwd=folder, check=True, capture_output=True)
    return Tls(*(str(folder / f"{name}.pem") for name in ("cert", "cert", "key")))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return credentials(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def address(ours: Tls) -> Iterator[str]:
    """A scheduler with a worker that trust our certificate alone."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,  # pyright: ignore
        security=connection._security(ours),
    ) as cluster:  # fmt: skip
        yield str(cluster.scheduler_address)  # pyright: ignore


def test_a_sweep_over_tls(ours: Tls, address: str, tmp_path: Path) -> None:
    assert address.startswith("tls://")
    files = ("--tls-ca-file", ours.ca_file, "--tls-cert", ours.cert, "--tls-key", ours.key)
    given = [part for key, value in GIVEN.items() for part in (f"--{key}", str(value))]
    arguments = ["sweep", str(VIT), "--data", str(IMAGES), "--out", str(tmp_path / "out"), *given]
    result = CliRunner().invoke(main, [*arguments, "--scheduler", address, *files])
    assert result.exit_code == 0, result.output
    assert "uniform" in result.stdout


def test_strangers_are_refused(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_REACH", 1.0)
    for tls in (None, credentials(tmp_path / "theirs")):
        with pytest.raises(UsageError, match=r"no scheduler.* answers"):
            run(VIT, IMAGES, out=tmp_path / "out", scheduler=address, tls=tls, **GIVEN)


@pytest.mark.slow
def test_processes_of_this_machine_speak_tls(ours: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []
    client = distributed.Client

    def seen(cluster: distributed.LocalCluster, **more: Any) -> distributed.Client:
        addresses.append(cluster.scheduler_address)
        return client(cluster, **more)

    monkeypatch.setattr(distributed, "Client", seen)
    assert run(VIT, IMAGES, out=tmp_path / "out", workers=2, tls=ours, **GIVEN).outcomes
    assert addresses[0].startswith("tls://")


def test_files_that_cannot_be_used(ours: Tls, tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")

    def refused(kind: type[Exception], message: str, tls: Tls, **more: Any) -> None:
        with pytest.raises(kind, match=message):
            run(VIT, IMAGES, out=tmp_path / "out", tls=tls, **GIVEN, **more)

    refused(UsageError, "does not begin with tls://", ours, scheduler="tcp://127.0.0.1:1")
    refused(UsageError, "for --workers or --scheduler", ours)
    refused(InputError, "absent.pem: No such file", replace(ours, cert="absent.pem"), workers=2)
    refused(InputError, "broken.pem", replace(ours, ca_file=str(tmp_path / "broken.pem")), workers=2)
    key = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", ours.key, "-aes256", "-passout", "pass:x", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    refused(InputError, "has a passphrase", replace(ours, key=str(key)), workers=2)
    result = CliRunner().invoke(main, ["sweep", "m", "--data", "d", "--metric", "kl", "--out", "o", "--tls-key", "k"])
    assert result.exit_code == 2
    assert "TLS needs --tls-ca-file, --tls-cert and --tls-key" in result.stderr
