"""A release: its version is the tag's, its licence is one expression, and who cites it finds a valid file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.licenses import canonicalize_license_expression
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str, at: Path, **given: str) -> str:
    """Run a program in a folder, with nothing in the environment that says a version."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SETUPTOOLS_SCM", "GIT_"))}
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(arguments, cwd=at, env=env | who | given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project without most of its modules, and without git."""
    pytest.importorskip("hatch_vcs")
    folder = tmp_path / "project"
    (folder / "softq").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "softq/__init__.py", "softq/_version.py"):
        shutil.copy(ROOT / name, folder / name)
    vendor = Path("softq/sweeps/report/vendor")
    shutil.copytree(ROOT / vendor, folder / vendor)
    return folder


def version(folder: Path, **given: str) -> str:
    return run(sys.executable, "-m", "hatchling", "version", at=folder, **given)


def test_the_version_is_that_of_the_tag_and_stays_in_the_sdist(project: Path, tmp_path: Path) -> None:
    assert version(project) == "0.0.0"  # no git
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        run("git", *command, at=project)
    untagged = Version(version(project))
    assert untagged.is_devrelease
    assert untagged < Version("0.1.0")
    run("git", "tag", "v9.8.7", at=project)
    assert version(project) == "9.8.7"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    run(*build, "--sdist", ".", at=project)
    with tarfile.open(tmp_path / "dist" / "softq-9.8.7.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert version(tmp_path / "softq-9.8.7") == "9.8.7"
    run(*build, "--wheel", ".", at=tmp_path / "softq-9.8.7")
    assert (tmp_path / "dist" / "softq-9.8.7-py3-none-any.whl").is_file()
    (project / "README.md").write_text("changed")
    run("git", "commit", "-q", "-a", "-m", "two", at=project)
    assert version(project).startswith("9.8.8.dev1+g")


def test_the_licence_is_an_expression_of_spdx() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert canonicalize_license_expression(project["license"]) == project["license"]
    assert not any("License ::" in one for one in project["classifiers"]), (
        "an expression and classifiers exclude each other"
    )


def test_the_citation_has_what_its_schema_asks_for() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["cff-version"] == "1.2.0"
    assert all("name" in author or "family-names" in author for author in found["authors"])
    # The version is the tag's alone.
    assert "version" not in found


def test_the_image_installs_what_its_comment_says(project: Path) -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    (variable,) = re.findall(r"^RUN (\w+)=", text, re.MULTILINE)
    assert version(project, **{variable: "3.2.1"}) == "3.2.1", "an image without git has the version that it is given"
    (extras,) = [line.split("[")[-1].split("]")[0].split(",") for line in text.splitlines() if "pip install" in line]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for needed in ("softq", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "constraints.txt"):
        assert (ROOT / needed).exists()
        assert needed not in ignored
