"""What killed processes leave behind is removed, and what living ones write is not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from softq import scratch
from softq.artifact.folder import NewFolder
from softq.errors import InputError
from softq.files import lock, make_locked_folder, open_locked_file, write_text
from softq.scratch import scratch_folder
from softq.sweeps.folder import open_folder

OTHERS = ("softq-mine", "softq.txt", "softq.0123abcd.softq-tmp.txt", "x.softq.0123abcd.softq-tmp")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._tidy.cache_clear()
    yield tmp_path
    scratch._tidy.cache_clear()


def test_orphans_go_and_nothing_else(temporary: Path) -> None:
    for name in OTHERS:
        (temporary / name).mkdir()
    (temporary / "softq.0123abcd.softq-tmp" / "below").mkdir(parents=True)
    (temporary / "softq.ffffffff.softq-tmp").symlink_to(temporary / OTHERS[0])
    living, descriptor = make_locked_folder(temporary, "softq", 0o700)
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        kept = {*OTHERS, "softq.ffffffff.softq-tmp", living.name}
        assert {path.name for path in temporary.iterdir()} == {*kept, folder.name}
        (folder / "file").write_text("text")
    assert {path.name for path in temporary.iterdir()} == kept
    os.close(descriptor)


def test_a_killed_process_leaves_nothing_for_long(temporary: Path) -> None:
    program = "import os, softq.scratch as s\nwith s.scratch_folder(): os.kill(os.getpid(), 9)"
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 1
    with scratch_folder():
        pass
    assert list(temporary.iterdir()) == []


def test_a_full_disk_is_one_line(temporary: Path) -> None:
    with pytest.raises(InputError, match="No space left on device"), scratch_folder():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match="Inappropriate ioctl"), scratch_folder():
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    assert list(temporary.iterdir()) == []
    (temporary / "file").write_text("")
    tempfile.tempdir = str(temporary / "file")
    with pytest.raises(InputError, match=r"cannot write .*file"), scratch_folder():
        pass


def test_a_full_disk_while_a_sweep_writes_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*sweep.*: No space"), open_folder(tmp_path / "sweep", False):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_text_file_on_its_way_is_no_orphan(tmp_path: Path) -> None:
    (tmp_path / ".plan.json.0123abcd.softq-tmp").write_text("half")
    with open_locked_file(tmp_path, ".plan.json") as other:
        write_text(tmp_path / "plan.json", "whole")
        assert {path.name for path in tmp_path.iterdir()} == {"plan.json", Path(other.name).name}
    assert (tmp_path / "plan.json").read_text() == "whole"


def test_the_second_of_two_that_write_the_same_folder_wins(tmp_path: Path) -> None:
    """Neither sees the other's folder as an orphan, and the one that comes later takes the place of the first."""
    goal, check = tmp_path / "built", lambda goal: None
    with NewFolder(goal, check) as first, NewFolder(goal, check) as second:
        for number, one in enumerate((first, second)):
            (one.path / "file").write_text(str(number))
        first.commit()
        second.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["built"]
    assert (tmp_path / "built" / "file").read_text() == "1"


def test_a_lock_that_another_has_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tidies up may take a new file for an orphan before its writer has locked it."""
    removed: list[str] = []

    def late(descriptor: int) -> bool:
        if not removed:
            (orphan,) = tmp_path.iterdir()
            orphan.unlink() if orphan.is_file() else orphan.rmdir()
            removed.append(orphan.name)
        return lock(descriptor)

    monkeypatch.setattr("softq.files.lock", late)
    with open_locked_file(tmp_path, ".a") as file:
        assert [path.name for path in tmp_path.iterdir()] == [Path(file.name).name]
    os.unlink(file.name)
    removed.clear()
    folder, descriptor = make_locked_folder(tmp_path, ".b", 0o700)
    assert list(tmp_path.iterdir()) == [folder]
    os.close(descriptor)


# In a process of its own: where a test before has loaded OpenVINO, SIGTERM ends the process.
_TERMINATED = """
import os, pathlib, signal, sys, tempfile
from click.testing import CliRunner
import softq.conversion
from softq.cli import main
from softq.scratch import scratch_folder

def ended(*arguments, **options):
    with scratch_folder():
        os.kill(os.getpid(), signal.SIGTERM)

tempfile.tempdir = sys.argv[1]
softq.conversion.inspect = ended
before = signal.getsignal(signal.SIGTERM)
result = CliRunner().invoke(main, ["inspect", "model.onnx"])
assert (result.exit_code, result.stderr) == (143, "softq: terminated\\n"), result
assert list(pathlib.Path(sys.argv[1]).iterdir()) == []
assert signal.getsignal(signal.SIGTERM) == before
"""


def test_sigterm_clears_away_what_is_half_done(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _TERMINATED, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
