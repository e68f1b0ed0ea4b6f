"""Packages of models in C: what is in them, that they run, and what the tools say that take them (`make packages`)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.cli import main
from softq.errors import InputError, UsageError
from softq.packages import PACKAGES

TOOLS = Path(__file__).resolve().parent.parent / "build" / "packages"
"""What `make packages` installs."""

MODEL = parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> f (float[2, 8] x) => (float[2, 8] y) { y = Softmax <axis = -1> (x) }'
)
X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
C_FILES = {"rows.h", "rows.c", "rows_kernels.h", "rows_kernels.c", "rows_weights.c"}
AROUND = {
    "arduino": {"library.properties", "examples/rows/rows.ino"},
    "cmsis-pack": {"Acme.rows.pdsc", "Acme.rows.2.1.0.pack"},
    "esp-idf": {"CMakeLists.txt", "idf_component.yml"},
    "platformio": {"library.json"},
    "zephyr": {"zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig"},
}
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def build(form: str, out: Path, target: str = "c,name=rows", options: str = ",version=2.1.0,vendor=Acme") -> Path:
    return softq.build(MODEL, out, target=target, package=f"{form}{options}").folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_form_is_tested_and_told() -> None:
    assert set(PACKAGES.entries()) == set(AROUND)
    listed = CliRunner().invoke(main, ["packages"]).stdout
    assert all(form in listed for form in AROUND)
    for form in AROUND:
        told = CliRunner().invoke(main, ["packages", form]).stdout
        assert told.startswith(f"{form}: ")
        assert "MAJOR.MINOR.PATCH" in told


@pytest.mark.parametrize("form", AROUND)
def test_a_package_has_its_files_and_runs(form: str, tmp_path: Path) -> None:
    found = files_of(build(form, tmp_path / "out"))
    facts = json.loads(found.pop("manifest.json"))
    assert set(found) == {f"src/{file}" for file in C_FILES} | AROUND[form]
    assert facts["package"] == form
    assert {name: facts["files"][name]["sha256"] for name in found} == {
        name: hashlib.sha256(content).hexdigest() for name, content in found.items()
    }
    with softq.load(tmp_path / "out") as model:
        powers = np.exp(X.astype(np.float64))
        np.testing.assert_allclose(
            np.asarray(model({"x": X})["y"], np.float64), powers / powers.sum(-1, keepdims=True), rtol=1e-6
        )
    assert files_of(build(form, tmp_path / "again")) == {
        **found,
        "manifest.json": files_of(tmp_path / "out")["manifest.json"],
    }
    plain = softq.build(MODEL, tmp_path / "plain", target="c,name=rows").folder
    assert {file: found[f"src/{file}"] for file in C_FILES} == {file: (plain / file).read_bytes() for file in C_FILES}


def test_a_package_takes_the_place_of_another_but_not_of_a_file_of_the_users(tmp_path: Path) -> None:
    out = build("zephyr", tmp_path / "out")
    build("arduino", tmp_path / "out")
    assert not (out / "zephyr").exists()
    (out / "src" / "mine.c").write_text("")
    with pytest.raises(UsageError, match=r"'src/mine\.c' in it is not of softq"):
        build("zephyr", out)
    (out / "src" / "mine.c").unlink()
    (out / "empty").mkdir()
    with pytest.raises(UsageError, match=r"'empty' in it is not of softq"):
        build("zephyr", out)


def test_a_changed_file_of_a_package_is_not_run(tmp_path: Path) -> None:
    out = build("platformio", tmp_path / "out")
    with open(out / "src" / "rows_kernels.c", "a") as file:
        file.write("\n")
    with pytest.raises(InputError, match=r"src/rows_kernels\.c: has \d+ bytes"):
        softq.load(out)


@pytest.mark.parametrize("path", ["../rows.h", "/rows.h", "src/../rows.h", "src//rows.h", "src\\rows.h"])
def test_a_path_out_of_the_folder_is_refused(path: str, tmp_path: Path) -> None:
    out = build("zephyr", tmp_path / "out")
    facts = json.loads((out / "manifest.json").read_text())
    facts["files"][path] = facts["files"]["src/rows.h"]
    (out / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="expected a path inside the folder"):
        softq.load(out)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("make", "unknown package 'make'; there are: arduino, cmsis-pack"),
        ("arduino,colour=red", "package arduino has no option 'colour'; its options are: version, vendor, url"),
        ("arduino,version=1.0", r"package: version is '1\.0'; expected MAJOR\.MINOR\.PATCH"),
        ("arduino,vendor=<me>", r"package: vendor is '<me>'; a text without quotes"),
        ("arduino,url=here", "package: url is 'here'; expected one that begins with http"),
        ("cmsis-pack,vendor=A B", "package: vendor is 'A B'; expected letters, digits"),
        ("arduino,version", "package 'arduino,version': 'version' is no option"),
    ],
)
def test_wrong_packages_are_refused(form: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        build(form, tmp_path / "out", options="")
    assert not (tmp_path / "out").exists()


def test_only_a_model_in_c_goes_into_a_package(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="package zephyr is for a model in C; target cpu builds none"):
        build("zephyr", tmp_path / "out", target="cpu")


def test_an_object_of_kernels_goes_into_no_package(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="packages have kernels in C alone; add kernels=c to the target"):
        build("zephyr", tmp_path / "out", target="cortex-m,cpu=m55,kernels=object,name=rows")
    build("zephyr", tmp_path / "out", target="cortex-m,cpu=m55,kernels=c,name=rows")


def test_an_arduino_sketch_compiles_and_runs(tmp_path: Path) -> None:
    out = build("arduino", tmp_path / "out")
    properties = dict(line.split("=", 1) for line in (out / "library.properties").read_text().splitlines())
    needed = ("name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures")
    assert all(properties[key] for key in needed)
    assert properties["includes"] == "rows.h"
    (tmp_path / "main.cpp").write_text(
        "#include <cstdio>\n#include <cstdlib>\nstruct { void begin(long) {} void print(const char *) {}\n"
        'void println(double x, int) { std::printf("%a\\n", x); }\n'
        'void println(unsigned long x) { std::printf("%lu\\n", x); }\n'
        'void println(int x) { std::printf("%d\\n", x); } } Serial;\n'
        "unsigned long micros() { return 0; }\nvoid delay(int) { std::exit(0); }\n"
        f'#include "{out}/examples/rows/rows.ino"\nint main() {{ setup(); for (;;) {{ loop(); }} }}\n'
    )
    objects: list[str] = []
    for source in sorted((out / "src").glob("*.c")):
        objects.append(f"{source.stem}.o")
        subprocess.run(["gcc", "-O1", "-c", str(source), "-o", objects[-1]], check=True, cwd=tmp_path)
    command = ["g++", "-Wall", "-Wextra", "-Werror", f"-I{out / 'src'}", "main.cpp", *objects, "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    *numbers, microseconds = [float.fromhex(line) for line in done.stdout.split()]
    assert numbers == [1 / 8] * 16  # Scores that are all 0.
    assert microseconds == 0


def test_a_pack_holds_what_its_description_names(tmp_path: Path) -> None:
    out = build("cmsis-pack", tmp_path / "out")
    with zipfile.ZipFile(out / "Acme.rows.2.1.0.pack") as pack:
        found = {name: pack.read(name) for name in pack.namelist()}
        assert {entry.date_time for entry in pack.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    text = found.pop("Acme.rows.pdsc").decode()
    assert text == (out / "Acme.rows.pdsc").read_text()
    assert found == {f"src/{file}": (out / "src" / file).read_bytes() for file in C_FILES}
    assert 'category="header" name="src/rows.h"' in text
    assert all(f'category="source" name="{file}"' in text for file in found if file.endswith(".c"))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.parametrize(
    ("form", "file", "stand_ins"),
    [
        ("esp-idf", "CMakeLists.txt", """
            function(idf_component_register)
              cmake_parse_arguments(given "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
              add_library(rows ${given_SRCS})
              target_include_directories(rows PUBLIC ${given_INCLUDE_DIRS})
            endfunction()"""),
        ("zephyr", "zephyr/CMakeLists.txt", """
            set(CONFIG_SOFTQ_ROWS y)
            function(zephyr_include_directories)
              set(include_directories ${ARGN} PARENT_SCOPE)
            endfunction()
            function(zephyr_library_named name)
            endfunction()
            function(zephyr_library_sources)
              add_library(rows ${ARGN})
              target_include_directories(rows PUBLIC ${include_directories})
            endfunction()"""),
    ],
)  # fmt: skip
def test_cmake_builds_what_a_package_names(form: str, file: str, stand_ins: str, tmp_path: Path) -> None:
    out = build(form, tmp_path / "out")
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.c").write_text(
        '#include "rows.h"\nint main(void) { return rows_run(0, 0) == ROWS_NULL_POINTER ? 0 : 1; }\n'
    )
    (project / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(try C)\n{stand_ins}\n"
        f"add_subdirectory({(out / file).parent} model)\nadd_executable(main main.c)\n"
        "target_link_libraries(main rows m)\n"
    )
    for command in (["cmake", "-B", "made", "."], ["cmake", "--build", "made"]):
        subprocess.run(command, check=True, cwd=project, capture_output=True)
    subprocess.run([project / "made" / "main"], check=True)


def tool(name: str) -> str:
    """Return a file of the tools' environment, or skip."""
    if not (TOOLS / name).exists():
        pytest.skip(f"needs {TOOLS / name}: make packages")
    return str(TOOLS / name)


def check(*command: str | Path, cwd: Path) -> None:
    quiet = {"PLATFORMIO_CORE_DIR": str(cwd / "core"), "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **quiet}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("form", ["arduino", "platformio"])
def test_platformio_packs(form: str, tmp_path: Path) -> None:
    out = build(form, tmp_path / "out")
    check(tool("bin/pio"), "pkg", "pack", out, "-o", tmp_path / "packed.tar.gz", cwd=tmp_path)
    assert (tmp_path / "packed.tar.gz").exists()
    (out / ("library.json" if form == "platformio" else "library.properties")).write_text("{}")
    with pytest.raises(AssertionError):
        check(tool("bin/pio"), "pkg", "pack", out, "-o", tmp_path / "wrong.tar.gz", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.packages
def test_the_schema_of_packs_takes_the_description(tmp_path: Path) -> None:
    out = build("cmsis-pack", tmp_path / "out")
    code = "import sys, xmlschema; xmlschema.XMLSchema(sys.argv[1]).validate(sys.argv[2])"
    command = (tool("bin/python"), "-c", code, tool("PACK.xsd"), out / "Acme.rows.pdsc")
    check(*command, cwd=tmp_path)
    description = out / "Acme.rows.pdsc"
    description.write_text(description.read_text().replace("<vendor>", "<seller>").replace("</vendor>", "</seller>"))
    with pytest.raises(AssertionError, match="seller"):
        check(*command, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.packages
def test_the_tool_of_components_packs(tmp_path: Path) -> None:
    out = build("esp-idf", tmp_path / "rows")
    command = (tool("bin/compote"), "component", "pack", "--name", "rows")
    check(*command, cwd=out)
    assert (out / "dist" / "rows_2.1.0.tgz").exists()
    (out / "idf_component.yml").write_text("version: seven\n")
    with pytest.raises(AssertionError, match="version"):
        check(*command, cwd=out)


@pytest.mark.slow
@pytest.mark.packages
def test_zephyr_reads_the_module(tmp_path: Path) -> None:
    out = build("zephyr", tmp_path / "rows")
    command = (tool("bin/python"), tool("zephyr_module.py"), "--modules", out)
    check(*command, "--cmake-out", "cmake.txt", "--kconfig-out", "Kconfig", cwd=tmp_path)
    assert (tmp_path / "cmake.txt").read_text() == f'"softq_rows":"{out}":"{out / "zephyr"}"\n'
    code = "import kconfiglib, sys; print(kconfiglib.Kconfig(sys.argv[1]).syms['SOFTQ_ROWS'].nodes[0].prompt[0])"
    check(tool("bin/python"), "-c", code, tmp_path / "Kconfig", cwd=tmp_path)
    (out / "zephyr" / "module.yml").write_text("build:\n  colour: red\n")
    with pytest.raises(AssertionError, match="colour"):
        check(*command, "--cmake-out", "cmake.txt", cwd=tmp_path)
