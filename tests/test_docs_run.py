"""Every block of code in README and docs is run, or it stands here why not."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import softq
import softq.modelfile
import softq.registry
from softq.cli import main
from softq.errors import InputError
from tests.attention import attention
from tests.handmade import needs_host

ROOT = Path(__file__).resolve().parent.parent
VIT = ROOT / "models" / "mnist_vit"
TOKENS, VOCABULARY = 8, 12

NOT_RUN: Mapping[str, str] = {
    "pip install .": "tests/wheel_smoke.py installs the wheel",
    "softq quickstart": "tests/test_cli_data.py types the commands that it prints",
    "softq convert model.onnx model.softq.onnx": "likewise",
    "softq data model.onnx data.npz --random": "tests/test_cli_data.py makes data of each kind",
    'eval "$(softq completion': "tests/test_cli_completion.py completes in bash",
    "make demo": "tests/test_examples.py runs what it runs",
    "make test": "it is what runs this",
    "make -C examples/microcontroller": "tests/test_examples.py does",
    "dask scheduler": "tests/test_cluster.py starts schedulers and workers",
    "softq audit --runtime": "tests/test_audit.py runs audits of onnxruntime, of functions and of recorded results",
    "openssl genpkey": "tests/test_signing.py makes keys, builds, signs and runs",
    "openssl pkeyutl": "tests/test_signing.py signs and checks",
    "openssl req": "tests/test_cluster_tls.py makes the certificate and measures over TLS",
    "softq run built --data data.npz --reference quantized.onnx    # needs one": "a GPU",
    "cc -O2 -Ibuilt": "tests/test_artifact_cuda.py compiles the example against a GPU's driver",
    "from softq.onnxruntime import register": "tests/test_build_onnxruntime.py registers",
    "import softq.onnxruntime": "tests/test_onnxruntime_library.py registers one of its own",
    "api->RegisterCustomOpsLibrary": "onnxruntime's own call, which `register` makes too",
    "session_options.RegisterCustomOpsLibrary": "likewise",
    '#include "vectors.h"': "tests/test_vectors.py compiles a kernel against the header",
    "iverilog -g2001": "tests/test_verilog.py does",
    "int digits_run": "tests/test_firmware.py calls both functions",
    "import torch": "tests/test_torch_transformers.py runs docs/pytorch.md",
    "import softq.torch": "likewise",
    "# model.py": "tests/test_torch_sweep.py runs it, and the command that reads it",
    "softq sweep model.py:make --framework torch": "likewise",
    "make integrations": "tests/test_integrations.py runs each script",
    'python -c "from softq.integrations': "tests/test_with_olive_passes.py and tests/test_with_optimum_command.py do",
    "olive run": "tests/test_with_olive_passes.py types it",
    "optimum-cli": "examples/integrations/optimum_command.py, which tests/test_integrations.py runs",
    '{"input_model"': "examples/integrations/olive_passes.py, likewise",
    "g++ -std=c++14": "tests/test_with_hls4ml_softmax.py does",
    "from softq.integrations": "lines of the scripts that tests/test_integrations.py runs",
    "from softq.torch.brevitas": "likewise",
    "program = torch.onnx.export": "likewise",
    "from dataclasses import dataclass": "tests/test_plug_ins.py does",
    "# softq.toml": "the commands of the page read it",
    'name = "my-npu"': "the command of the page reads it",
    "[project.entry-points": "tests/test_plug_ins.py builds and installs the package",
    "- uses: ": "tests/test_ci.py runs the action's scripts",
    "- repo: ": "tests/test_ci.py runs the hooks",
    "{": "schemas: tests/test_explain.py and tests/test_report_page.py hold what is printed against them",
}
"""Beginnings of blocks, or of lines in blocks, that this file does not run, and what runs them."""


class Block(NamedTuple):
    """A block of code in a page; `needs` is the hardware or time that its title names, where it is not run for that."""

    page: str
    language: str
    needs: str
    text: str


def blocks() -> list[Block]:
    """Return the blocks of README and of docs."""
    fence = re.compile(r'^```(\w*)(?: title="Needs ([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
    return [
        Block(page.name, found[1], found[2] or "", found[3])
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        for found in fence.finditer(page.read_text("utf-8"))
    ]


OUTPUT = ("text", "json")
"""Languages of what is printed or written, not typed."""

LONG = ("softq sweep", "softq build", "softq plan")
SLOW = [pytest.mark.slow]

BLOCKS = blocks()
ELSEWHERE = [block for block in BLOCKS if block.text.lstrip().startswith(tuple(NOT_RUN))]
HARD = [block for block in BLOCKS if block.needs]
SHOWN = [block for block in BLOCKS if block.language in OUTPUT and block not in ELSEWHERE]
RUN = [block for block in BLOCKS if block not in (*ELSEWHERE, *HARD, *SHOWN)]


def is_long(text: str) -> bool:
    """Say whether a block has a command that takes seconds."""
    return "softq.build(" in text or any(line.startswith(LONG) for line in text.splitlines())


def test_every_block_is_run_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    fences = sum(page.read_text("utf-8").count("\n```") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert fences == 2 * len(BLOCKS), "a block has an info string that is neither a language nor what it needs"
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        rest = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        indented = re.search(r"^(?![*0-9 ]).*\n\n    \S.*", rest, re.MULTILINE)
        assert indented is None, f"{page.name}: code between ``` is run, indented code is not: {indented}"
    assert len(RUN) > 20
    for block in HARD:
        for module in re.findall(r"python -m (benchmarks[\w.]*)", block.text):
            assert importlib.util.find_spec(module), (block.page, module)
        for target in re.findall(r"^make (\w+)", block.text, re.MULTILINE):
            assert f"\n{target}:" in (ROOT / "Makefile").read_text("utf-8"), (block.page, target)
    with capsys.disabled():
        print(
            f"\nof {len(BLOCKS)} blocks in the documentation {len(RUN)} are run here, {len(ELSEWHERE)} by other tests, "
            f"{len(SHOWN)} are output, {len(HARD)} are not run: they need hardware or hours"
        )


def language_model() -> onnx.ModelProto:
    """Return a tiny language model with one attention."""
    graph = f"""<ir_version: 10, opset_import: ["": 21]>
    lm (int64[batch, {TOKENS}] ids) => (float[batch, {TOKENS}, {VOCABULARY}] logits) {{
        x = Gather(embedding, ids)
        turned = Transpose <perm = [0, 2, 1]> (x)
        scores = MatMul(x, turned)
        p = Softmax <axis = -1> (scores)
        mixed = MatMul(p, x)
        logits = MatMul(mixed, head)
    }}"""
    model = onnx.parser.parse_model(graph)
    random = np.random.default_rng(0)
    for name, shape in (("embedding", (VOCABULARY, 4)), ("head", (4, VOCABULARY))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.normal(size=shape).astype("f"), name))
    return model


def softpick() -> onnx.ModelProto:
    """Return an attention whose weights are written as those of softpick."""
    return attention(
        behind="""
        less = Constant <value_float = 1.0> ()
        e = Exp(masked) powers = Sub(e, less) positive = Relu(powers) size = Abs(powers)
        axis = Constant <value_ints = [-1]> () total = ReduceSum(size, axis)
        eps = Constant <value_float = 1e-6> () bottom = Add(total, eps) p = Div(positive, bottom)
    """
    )


def prepare(page: str, text: str) -> None:
    """Put model.onnx and data.npz into the current folder: what the block is about."""
    if "my_ramp.py" in text:
        blocks_of = [block.text for block in BLOCKS if block.page == page and "METHOD = " in block.text]
        Path("my_ramp.py").write_text(blocks_of[0])
    if "my_npu.toml" in text:
        Path("my_npu.toml").write_text(next(b.text for b in BLOCKS if b.page == page and b.language == "toml"))
    if "softq.toml" in text:
        named = [block.text for block in BLOCKS if block.page == page and block.language == "toml"]
        Path("softq.toml").write_text(named[0])
    if "perplexity" in text:
        ids = np.random.default_rng(1).integers(0, VOCABULARY, (16, TOKENS))
        onnx.save(language_model(), "model.onnx")
        np.savez("data.npz", **{"ids": ids, "label.next": ids})  # pyright: ignore
    elif "softpick" in text:
        onnx.save(softpick(), "model.onnx")
    else:
        Path("model.onnx").write_bytes((VIT / "mnist_vit.onnx").read_bytes())
        # The configuration searches on 64 and verifies on 64 others.
        count = 128 if "softq.toml" in text else 64
        with np.load(VIT / "data.npz") as arrays:
            np.savez("data.npz", **{name: arrays[name][:count] for name in arrays.files})  # pyright: ignore
        if "convert" not in text:
            softq.modelfile.save(softq.convert("model.onnx").model, "quantized.onnx")
        if "run built" in text and "build" not in text:
            softq.build("quantized.onnx", "built", target="cpu")


@needs_host
@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="builds need TVM")
@pytest.mark.parametrize(
    ("page", "language", "text"),
    [
        pytest.param(
            block.page,
            block.language,
            block.text,
            id=f"{block.page}-{block.text.split()[1]}",
            marks=SLOW * is_long(block.text),
        )
        for block in RUN
    ],
)
def test_block(page: str, language: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(softq.registry, "_OWN", {})  # What a file makes known ends with the block.
    prepare(page, text)
    if language == "python":
        with np.load("data.npz") as arrays:
            exec(text, {"images": arrays["images"]})
        return
    for line in text.splitlines():
        if line.startswith(tuple(NOT_RUN)):
            continue
        program, *arguments = shlex.split(line, comments=True)
        assert program == "softq", line
        result = CliRunner().invoke(main, arguments)
        # A gate may say no of so few samples.
        assert result.exit_code == 0 or (result.exit_code == 1 and "--max-drop" in arguments), (line, result.output)


def test_what_is_not_run_is_there() -> None:
    lines = [line for block in BLOCKS for line in block.text.splitlines()]
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for line in lines), beginning


def test_save_takes_what_convert_gives(tmp_path: Path) -> None:
    model = attention()
    for given in (model, ir.from_proto(model)):
        result = softq.convert(given)
        softq.modelfile.save(result.model, tmp_path / f"{type(given).__name__}.onnx")
    proto, of_ir = (tmp_path / f"{name}.onnx" for name in ("ModelProto", "Model"))
    assert proto.read_bytes() == of_ir.read_bytes()
    model.graph.initializer.add(name="w", data_location=onnx.TensorProto.EXTERNAL, dims=[1], data_type=1)
    with pytest.raises(InputError, match="external"):
        softq.modelfile.save(model, tmp_path / "external.onnx")


def test_the_tests_that_docs_name_are_there() -> None:
    there = {name for path in Path(__file__).parent.glob("test_*.py")
             for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)}  # fmt: skip
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text("utf-8")))
    assert named
    assert named <= there
