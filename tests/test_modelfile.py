"""Model files: what is refused, what is written, and what an error leaves behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from softq import files, modelfile
from softq.errors import InputError, SoftqError, UsageError
from softq.modelfile import as_model, graph_hash, load, proto_without_weights, save, staging, weights_fingerprint

WEIGHTS = np.random.default_rng(5).normal(size=(3, 600)).astype(np.float32)


def plain() -> onnx.ModelProto:
    """A model of one weight, `w`, in memory."""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2,3] x) => (float[2,600] y) { y = MatMul(x, w) }'
    )
    proto.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    return proto


def external(**entries: str) -> onnx.ModelProto:
    """The same with `w` outside; entries with the value "" are left out."""
    proto = plain()
    make_external(proto.graph.initializer[0], **entries)
    return proto


def make_external(tensor: onnx.TensorProto, **entries: str) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    known = {"location": "w.bin", "offset": "0", "length": str(WEIGHTS.nbytes)} | entries
    for key, value in known.items():
        if value:
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))


def write(folder: Path, proto: onnx.ModelProto, data: str | None = "w.bin") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if data is not None:
        (folder / data).parent.mkdir(parents=True, exist_ok=True)
        (folder / data).write_bytes(WEIGHTS.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def result(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": np.eye(2, 3, dtype=np.float32)})[0])


def assert_refused(words: str, call: Callable[[], object], kind: type[SoftqError] = InputError) -> None:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert words in text, text
    assert "\n" not in text
    assert len(text) < 600


# Files that are no models


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 this is no model", "not an ONNX file"),
        (b"ir_version: 8\ngraph { }\n", "not an ONNX file"),
        (b'{"irVersion": "8", "graph": {}}', "not an ONNX file"),
        (b"\x08\x08", "has no graph"),
        (b"\x3a\x00", "IR version 0"),
        (b"\x08\x08\x3a\x00", "imports no operator set"),
        (b"\x18\x00\x00\x00ORTM" + bytes(40), "onnxruntime's own format"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    assert_refused(words, lambda: load(path))
    assert_refused(repr(str(path)), lambda: load(path))


def test_truncation_anywhere_is_noticed(tmp_path: Path) -> None:
    data = plain().SerializeToString(deterministic=True)
    path = tmp_path / "model.onnx"
    for length in {*range(0, len(data), 97), *range(len(data) - 20, len(data))}:
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            load(path)


def test_random_bytes_never_give_anything_but_an_input_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    data = external().SerializeToString()
    path = write(tmp_path, external())
    for _ in range(300):
        changed = bytearray(data)
        for position in rng.integers(0, len(changed), size=3):
            changed[position] = rng.integers(0, 256)
        path.write_bytes(bytes(changed))
        try:
            model = load(path)
            graph_hash(model)
            weights_fingerprint(model)
            save(model, tmp_path / "out.onnx")
        except InputError:
            pass


def test_things_that_are_not_files(tmp_path: Path) -> None:
    assert_refused("is a folder", lambda: load(tmp_path))
    assert_refused("No such file", lambda: load(tmp_path / "absent.onnx"))
    assert_refused("No such file", lambda: load("https://example.com/model.onnx"))
    assert_refused("null byte", lambda: load("a\0b"))
    os.mkfifo(tmp_path / "pipe")
    assert_refused("not a regular file", lambda: load(tmp_path / "pipe"))
    (tmp_path / "loop").symlink_to("loop")
    assert_refused("cannot read", lambda: load(tmp_path / "loop"))


def test_versions_and_parts_that_cannot_be_kept(tmp_path: Path) -> None:
    def changed(change: Callable[[onnx.ModelProto], object]) -> Path:
        proto = plain()
        change(proto)
        return write(tmp_path, proto)

    assert_refused("IR version 2", lambda: load(changed(lambda p: setattr(p, "ir_version", 2))))
    assert_refused("IR version 900", lambda: load(changed(lambda p: setattr(p, "ir_version", 900))))
    again = helper.make_opsetid("ai.onnx", 17)
    assert_refused("two versions", lambda: load(changed(lambda p: p.opset_import.append(again))))
    same = [helper.make_opsetid(domain, 18) for domain in ("", "ai.onnx")]  # as onnx.compose writes it
    assert load(changed(lambda p: p.opset_import.extend(same))).opset_imports[""] == 18
    sparse = onnx.SparseTensorProto(values=numpy_helper.from_array(np.ones(1, np.float32), "s"), dims=[4])
    assert_refused("sparse", lambda: load(changed(lambda p: p.graph.sparse_initializer.append(sparse))))
    assert_refused("training", lambda: load(changed(lambda p: p.training_info.add())))
    assert_refused(
        "7196 bytes", lambda: load(changed(lambda p: setattr(p.graph.initializer[0], "raw_data", bytes(7196))))
    )


def test_damage_that_protobuf_lets_through(tmp_path: Path) -> None:
    def refused(words: str, proto: onnx.ModelProto, old: bytes = b"", new: bytes = b"") -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(proto.SerializeToString().replace(old, new) if old else proto.SerializeToString())
        assert_refused(words, lambda: load(path))

    refused("not UTF-8", plain(), b"MatMul", b"MatM\xff\xfe")
    refused("not UTF-8", external(), b"w.bin", b"w.b\xffn")
    typed = plain()
    typed.graph.initializer[0].ClearField("raw_data")
    refused("has no values", typed)
    typed.graph.initializer[0].float_data.extend([1.0] * 1799)
    refused("do not fit its type and shape", typed)
    typed.graph.initializer[0].float_data.append(1.0)
    typed.graph.initializer[0].data_type = TensorProto.INT16
    refused("do not fit its type and shape", typed)
    attribute = plain()
    attribute.graph.node[0].attribute.add(name="a")
    refused("has no type", attribute)
    attribute.graph.node[0].attribute[0].type = onnx.AttributeProto.TENSOR
    refused("has no value", attribute)


# External data


def test_well_formed_external_data_is_mapped(tmp_path: Path) -> None:
    path = write(tmp_path, external())
    weights = load(path).graph.initializers["w"].const_value
    assert isinstance(weights, ir.ExternalTensor)
    np.testing.assert_array_equal(weights.numpy(), WEIGHTS)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"location": ""}, "not a file name"),
        ({"location": "."}, "is a folder"),
        ({"location": "sub"}, "not a regular file"),
        ({"location": "absent.bin"}, "no such file"),
        ({"location": "a\0b"}, "not a file name"),
        # CVE-2022-25882: up and out.
        ({"location": "../secret.bin"}, "leads outside"),
        ({"location": "../../../../../../../../etc/passwd"}, "leads outside"),
        ({"location": "/etc/passwd"}, "is absolute"),
        # CVE-2024-27318: down first, then up and out.
        ({"location": "sub/../../secret.bin"}, "leads outside"),
        ({"location": "sub/../sub/../../secret.bin"}, "leads outside"),
        ({"location": "..\\secret.bin"}, "leads outside"),
        ({"location": "C:\\secret.bin"}, "is absolute"),
        # CVE-2026-28500: nothing is ever fetched.
        ({"location": "https://example.com/w.bin"}, "no such file"),
        # CVE-2026-34445: keys that become attributes, and sizes that fill the memory.
        ({"__class__": "x"}, "'__class__'; allowed are"),
        ({"file_path": "/etc/passwd"}, "'file_path'; allowed are"),
        ({"offset": "-4"}, "'-4'; it must be a count"),
        ({"offset": "1_0"}, "'1_0'; it must be a count"),
        ({"offset": "1e3"}, "must be a count"),
        ({"length": "-7200"}, "must be a count"),
        ({"length": "9" * 400}, "must be a count"),
        ({"length": "1000000000000"}, "ask for 7200"),
        ({"length": "7199"}, "ask for 7200"),
        ({"length": "0"}, "ask for 7200"),
        ({"offset": "4"}, "do not lie within"),
        ({"offset": "9223372036854775807"}, "do not lie within"),
        ({"offset": "4", "length": ""}, "do not lie within"),
    ],
)
@pytest.mark.parametrize("place", ["initializer", "constant", "body", "function"])
def test_hostile_entries(tmp_path: Path, entries: dict[str, str], words: str, place: str) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "m" / "sub").mkdir(parents=True)
    proto = elsewhere(external(**entries), place)
    path = write(tmp_path / "m", proto)
    assert_refused(words, lambda: load(path))
    assert_refused("'w'", lambda: load(path))


def elsewhere(proto: onnx.ModelProto, place: str) -> onnx.ModelProto:
    """Move the external tensor of the model from its initializers to somewhere that readers forget."""
    if place == "initializer":
        return proto
    tensor = onnx.TensorProto()
    tensor.CopyFrom(proto.graph.initializer[0])
    del proto.graph.initializer[:]
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    if place == "constant":
        proto.graph.node.insert(0, constant)
    elif place == "function":
        function = helper.make_function("local", "Weights", [], ["w"], [constant], [helper.make_opsetid("", 18)])
        proto.functions.append(function)
        proto.opset_import.append(helper.make_opsetid("local", 1))
        proto.graph.node.insert(0, helper.make_node("Weights", [], ["w"], domain="local"))
    else:
        info = helper.make_tensor_value_info("w", TensorProto.FLOAT, WEIGHTS.shape)
        inner = helper.make_node("If", ["yes"], ["v"])
        for branch in ("then_branch", "else_branch"):
            body = helper.make_graph([], branch, [], [info], initializer=[tensor])
            inner.attribute.append(helper.make_attribute(branch, body))
        outer = helper.make_graph([inner], "outer", [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)])
        node = helper.make_node("If", ["yes"], ["w"], then_branch=outer, else_branch=outer)
        yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
        proto.graph.node.insert(0, node)
        proto.graph.node.insert(0, yes)
    return proto


@pytest.mark.parametrize("place", ["initializer", "constant", "body", "function"])
def test_the_same_places_with_good_entries(tmp_path: Path, place: str) -> None:
    path = write(tmp_path / "m", elsewhere(external(), place))
    model = load(path)
    (tmp_path / "out").mkdir()
    save(model, tmp_path / "out" / "model.onnx")
    assert (tmp_path / "out" / "w.bin").read_bytes() == WEIGHTS.tobytes()
    assert graph_hash(load(tmp_path / "out" / "model.onnx")) == graph_hash(model)


def test_keys_twice_and_strings_outside_and_negative_dimensions(tmp_path: Path) -> None:
    proto = external()
    proto.graph.initializer[0].external_data.append(onnx.StringStringEntryProto(key="location", value="w.bin"))
    assert_refused("'location' twice", lambda: load(write(tmp_path, proto)))
    proto = external()
    proto.graph.initializer[0].data_type = TensorProto.STRING
    assert_refused("element type 8", lambda: load(write(tmp_path, proto)))
    proto.graph.initializer[0].data_type = 999
    assert_refused("element type 999", lambda: load(write(tmp_path, proto)))
    proto = external()
    proto.graph.initializer[0].dims[:] = [-3, -600]
    assert_refused("cannot be negative", lambda: load(write(tmp_path, proto)))


def test_link_beside_a_plain_model_that_leads_outside(tmp_path: Path) -> None:
    """CVE-2026-34447."""
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    path = write(tmp_path / "m", external(), data=None)
    (tmp_path / "m" / "w.bin").symlink_to("../secret.bin")
    assert_refused("leads outside the model's folder", lambda: load(path))


def test_linked_parent_folder_that_leads_outside(tmp_path: Path) -> None:
    """CVE-2026-27489."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = write(tmp_path / "m", external(location="sub/w.bin"), data=None)
    (tmp_path / "m" / "sub").symlink_to("../private")
    assert_refused("leads outside the model's folder", lambda: load(path))


def test_hard_link(tmp_path: Path) -> None:
    """CVE-2026-34446."""
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    path = write(tmp_path / "m", external(), data=None)
    os.link(tmp_path / "secret.bin", tmp_path / "m" / "w.bin")
    assert_refused("hard links", lambda: load(path))


def test_pipe_device_and_loop(tmp_path: Path) -> None:
    path = write(tmp_path, external(), data=None)
    os.mkfifo(tmp_path / "w.bin")
    assert_refused("not a regular file", lambda: load(path))
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/dev/zero")
    assert_refused("leads outside", lambda: load(path))
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("w.bin")
    assert_refused("cannot be used", lambda: load(path))


@pytest.mark.parametrize("given", ["model.onnx", "./model.onnx"])
def test_rules_hold_for_a_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    write(tmp_path / "m", external(location="../secret.bin"), data=None)
    monkeypatch.chdir(tmp_path / "m")
    assert_refused("leads outside", lambda: load(given))
    write(tmp_path / "m", external(), data=None)
    Path("w.bin").symlink_to("../secret.bin")
    assert_refused("leads outside", lambda: load(given))
    # onnx-ir itself reads it: this is the gap that as_model has to close too.
    lax = ir.load(given)
    if given == "model.onnx":
        weights = lax.graph.initializers["w"].const_value
        assert weights is not None
        np.testing.assert_array_equal(weights.numpy(), WEIGHTS)
    assert_refused("leads outside", lambda: as_model(lax))


def test_a_good_model_by_a_bare_name_survives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, external())
    monkeypatch.chdir(tmp_path)
    model = load("model.onnx")
    lax = as_model(ir.load("model.onnx"))
    monkeypatch.chdir("/")
    for each in (model, lax):
        weights = each.graph.initializers["w"].const_value
        assert weights is not None
        np.testing.assert_array_equal(weights.numpy(), WEIGHTS)


@pytest.mark.parametrize("sub", ["", "onnx"])
def test_caches_made_of_links(tmp_path: Path, sub: str) -> None:
    blobs = tmp_path / "blobs"
    snapshot = tmp_path / "snapshots" / "1234" / sub
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "aaa").write_bytes(external(location="model.onnx_data").SerializeToString())
    (blobs / "bbb").write_bytes(WEIGHTS.tobytes())
    up = os.path.relpath(blobs, snapshot)
    (snapshot / "model.onnx").symlink_to(f"{up}/aaa")
    (snapshot / "model.onnx_data").symlink_to(f"{up}/bbb")

    model = load(snapshot / "model.onnx")
    weights = model.graph.initializers["w"].const_value
    assert weights is not None
    np.testing.assert_array_equal(weights.numpy(), WEIGHTS)

    # Readers refuse links, so a model beside them gets a file; the name is taken there, by the link itself.
    save(model, snapshot / "out.onnx")
    assert not (snapshot / "out.onnx.data").is_symlink()
    np.testing.assert_array_equal(result(snapshot / "out.onnx"), WEIGHTS[:2])
    (tmp_path / "new").mkdir()
    save(as_model(model), tmp_path / "new" / "out.onnx")
    assert sorted(os.listdir(tmp_path / "new")) == ["model.onnx_data", "out.onnx"]
    np.testing.assert_array_equal(result(tmp_path / "new" / "out.onnx"), WEIGHTS[:2])
    assert_refused("is the input", lambda: save(model, blobs / "aaa"), UsageError)
    assert_refused("is the input", lambda: save(model, blobs / "bbb"), UsageError)
    assert_refused("is the input", lambda: save(model, snapshot / "model.onnx_data"), UsageError)

    # A link in the same cache to somewhere else is no less hostile.
    (snapshot / "model.onnx_data").unlink()
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    (snapshot / "model.onnx_data").symlink_to(tmp_path / "secret.bin")
    assert_refused("leads outside", lambda: load(snapshot / "model.onnx"))


def test_a_link_to_a_model_elsewhere_finds_the_data_there(tmp_path: Path) -> None:
    path = write(tmp_path / "m", external(location="data/w.bin"), data="data/w.bin")
    (tmp_path / "short.onnx").symlink_to(path)
    weights = load(tmp_path / "short.onnx").graph.initializers["w"].const_value
    assert weights is not None
    np.testing.assert_array_equal(weights.numpy(), WEIGHTS)


def test_weights_that_a_disk_does_not_give_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(write(tmp_path, external()))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("softq.modelfile.hashing.open", fail, raising=False)
    assert_refused("w.bin': Input/output error", lambda: weights_fingerprint(model))


def test_a_file_that_changed_after_loading_is_noticed(tmp_path: Path) -> None:
    model = load(write(tmp_path, external()))
    (tmp_path / "w.bin").write_bytes(b"short")
    assert_refused("do not lie within", lambda: save(model, tmp_path / "out.onnx"))
    assert_refused("do not lie within", lambda: weights_fingerprint(model))
    (tmp_path / "w.bin").unlink()
    assert_refused("no such file", lambda: save(model, tmp_path / "out.onnx"))
    assert os.listdir(tmp_path) == ["model.onnx"]


# Writing


def test_beside_or_above_its_weights_a_model_refers_to_them(tmp_path: Path) -> None:
    path = write(tmp_path / "m" / "deep", external(location="w/w.bin"), data="w/w.bin")
    model = load(path)
    for name, location in (
        ("m/deep/out.onnx", "w/w.bin"),
        ("m/out.onnx", "deep/w/w.bin"),
        ("m/deep/w/o.onnx", "w.bin"),
    ):
        save(model, tmp_path / name)
        proto = onnx.load(tmp_path / name, load_external_data=False)
        entries = {entry.key: entry.value for entry in proto.graph.initializer[0].external_data}
        assert entries["location"] == location
        onnx.checker.check_model(str(tmp_path / name))
        np.testing.assert_array_equal(result(tmp_path / name), WEIGHTS[:2])
    files = [f for _, _, names in os.walk(tmp_path) for f in names]
    assert sorted(files) == ["model.onnx", "o.onnx", "out.onnx", "out.onnx", "w.bin"]


def test_elsewhere_the_data_is_copied_once_under_its_name(tmp_path: Path) -> None:
    proto = external()
    second = proto.graph.initializer.add()
    second.CopyFrom(proto.graph.initializer[0])
    second.name = "unused"
    model = load(write(tmp_path / "m", proto))
    (tmp_path / "out").mkdir()
    save(model, tmp_path / "out" / "model.onnx")
    save(model, tmp_path / "out" / "model.onnx")
    assert sorted(os.listdir(tmp_path / "out")) == ["model.onnx", "w.bin"]
    assert (tmp_path / "out" / "w.bin").stat().st_nlink == 1
    np.testing.assert_array_equal(result(tmp_path / "out" / "model.onnx"), WEIGHTS[:2])
    np.testing.assert_array_equal(result(tmp_path / "m" / "model.onnx"), WEIGHTS[:2])


def test_names_that_are_taken(tmp_path: Path) -> None:
    model = load(write(tmp_path / "m", external()))
    out = tmp_path / "out"
    out.mkdir()
    (out / "w.bin").write_bytes(b"another model's")
    (out / "model.onnx.data").symlink_to(tmp_path / "nothing")
    save(model, out / "model.onnx")
    first = (out / "model.onnx").read_bytes()
    save(model, out / "model.onnx")
    assert (out / "model.onnx").read_bytes() == first
    assert (out / "w.bin").read_bytes() == b"another model's"
    assert sorted(os.listdir(out)) == ["model.onnx", "model.onnx.1.data", "model.onnx.data", "w.bin"]
    np.testing.assert_array_equal(result(out / "model.onnx"), WEIGHTS[:2])
    # An output that bears the name of the data.
    (tmp_path / "other").mkdir()
    save(model, tmp_path / "other" / "w.bin")
    assert (tmp_path / "other" / "w.bin.data").read_bytes() == WEIGHTS.tobytes()


def test_two_files_of_one_name(tmp_path: Path) -> None:
    proto = external(location="a/w.bin")
    second = proto.graph.initializer.add()
    second.CopyFrom(external(location="b/w.bin").graph.initializer[0])
    second.name = "v"
    path = write(tmp_path / "m", proto, data="a/w.bin")
    (tmp_path / "m" / "b").mkdir()
    (tmp_path / "m" / "b" / "w.bin").write_bytes((WEIGHTS + 1).tobytes())
    (tmp_path / "out").mkdir()
    save(load(path), tmp_path / "out" / "o.onnx")
    weights = load(tmp_path / "out" / "o.onnx").graph.initializers
    for name, expected in (("w", WEIGHTS), ("v", WEIGHTS + 1)):
        tensor = weights[name].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), expected)


def test_inline_stays_inline(tmp_path: Path) -> None:
    path = write(tmp_path, plain(), data=None)
    save(load(path), tmp_path / "out.onnx")
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "out.onnx"]
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), WEIGHTS[:2])


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT4, ir.DataType.BFLOAT16])
def test_what_one_message_cannot_hold_goes_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: ir.DataType
) -> None:
    monkeypatch.setattr("softq.modelfile.writing.MAX_PROTO_BYTES", 2000)
    model = as_model(plain())
    values = np.arange(3001).astype(np.float32).astype(dtype.numpy())
    extra = ir.Value(name="extra", const_value=ir.Tensor(values, dtype=dtype, name="extra"))
    model.graph.register_initializer(extra)
    small = ir.Value(name="small", const_value=ir.Tensor(np.ones(3, np.float32), name="small"))
    model.graph.register_initializer(small)
    for _ in range(2):
        save(model, tmp_path / "out.onnx")
        assert sorted(os.listdir(tmp_path)) == ["out.onnx", "out.onnx.data"]
    assert model.graph.initializers["extra"].const_value is extra.const_value
    again = load(tmp_path / "out.onnx").graph.initializers
    assert isinstance(again["extra"].const_value, ir.ExternalTensor)
    assert not isinstance(again["small"].const_value, ir.ExternalTensor)
    assert again["extra"].const_value.tobytes() == ir.Tensor(values, dtype=dtype).tobytes()
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), WEIGHTS[:2])


def test_output_equal_to_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m", external())
    before = path.read_bytes()
    model = load(path)
    (tmp_path / "link.onnx").symlink_to(path)
    (tmp_path / "linked").symlink_to("m")
    os.link(path, tmp_path / "hard.onnx")
    monkeypatch.chdir(tmp_path)
    same = [path, "m/model.onnx", "m/../m/./model.onnx", "link.onnx", "linked/model.onnx", "hard.onnx", "m/w.bin"]
    for output in same:
        assert_refused("inputs are never written", lambda output=output: save(model, output), UsageError)
        assert_refused("inputs are never written", lambda output=output: save(as_model(model), output), UsageError)
    inline = as_model(plain())
    for output in same[:-1]:
        assert_refused("is the input", lambda output=output: save(inline, output, source=path), UsageError)
    assert path.read_bytes() == before
    assert (tmp_path / "m" / "w.bin").read_bytes() == WEIGHTS.tobytes()


def test_outputs_that_are_no_place_for_a_file(tmp_path: Path) -> None:
    model = as_model(plain())
    assert_refused("does not exist", lambda: save(model, tmp_path / "absent" / "out.onnx"))
    assert_refused("does not exist", lambda: save(model, write(tmp_path, plain()) / "out.onnx"))
    (tmp_path / "folder").mkdir()
    assert_refused("is a folder", lambda: save(model, tmp_path / "folder"), UsageError)
    assert_refused("not a file name", lambda: save(model, str(tmp_path) + "/"), UsageError)
    os.mkfifo(tmp_path / "pipe")
    assert_refused("not a regular file", lambda: save(model, tmp_path / "pipe"), UsageError)


def test_large_files_are_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of which some are on the disk and forgotten by the system while others are on their way."""
    for module, name, size in ((files, "ON_ITS_WAY", 3000), (staging, "ON_ITS_WAY", 3000), (staging, "_CHUNK", 1000)):
        monkeypatch.setattr(module, name, size)
    path, let_go = write(tmp_path, external(), "w.bin"), files.let_go
    contents, gone = (tmp_path / "w.bin").read_bytes(), list[str]()

    def counted(file: BinaryIO) -> None:
        gone.append(file.name)
        let_go(file)

    for module in (files, staging):
        monkeypatch.setattr(module, "let_go", counted)
    (tmp_path / "other").mkdir()
    save(load(path), tmp_path / "other" / "out.onnx")
    assert (tmp_path / "other" / "w.bin").read_bytes() == contents
    assert len(contents) > 6000
    assert str(tmp_path / "w.bin") in gone
    assert any("softq-tmp" in name for name in gone)


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o555)
        assert_refused("Permission denied", lambda: save(as_model(plain()), tmp_path / "locked" / "out.onnx"))
    if sys.platform == "linux":
        # Not even the superuser creates files there.
        assert_refused("cannot write '/proc/out.onnx'", lambda: save(as_model(plain()), "/proc/out.onnx"))


SMALL_DISK = """
import os, resource, sys
from softq.errors import InputError
from softq.modelfile import load, save
model = load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    save(model, sys.argv[2])
except InputError as error:
    print(error)
    sys.exit(2)
"""


@pytest.mark.parametrize("limit", [100, 5000])
@pytest.mark.parametrize("kind", ["inline", "external"])
def test_write_that_fails_midway_leaves_everything_as_it_was(tmp_path: Path, limit: int, kind: str) -> None:
    path = write(tmp_path / "m", external() if kind == "external" else plain())
    out = tmp_path / "out"
    out.mkdir()
    (out / "o.onnx").write_bytes(b"precious")
    command = [sys.executable, "-c", SMALL_DISK, str(path), str(out / "o.onnx"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, ""), done.stderr
    assert done.stdout.startswith("cannot write ")
    assert done.stdout.count("\n") == 1
    assert os.listdir(out) == ["o.onnx"]
    assert (out / "o.onnx").read_bytes() == b"precious"


@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_failure_of_each_step_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    model = load(write(tmp_path / "m", external()))
    out = tmp_path / "out"
    out.mkdir()
    (out / "o.onnx").write_bytes(b"precious")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        assert_refused("No space left on device", lambda: save(model, out / "o.onnx"))
    assert os.listdir(out) == ["o.onnx"]
    assert (out / "o.onnx").read_bytes() == b"precious"


CRASH = """
import os, sys
from softq.modelfile import load, save
os.replace = lambda *_: os._exit(9)
if sys.argv[3] == "data":
    os.rename = os.replace
save(load(sys.argv[1]), sys.argv[2])
"""


def test_orphans_of_a_crash_are_removed_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "m", external())
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", CRASH, str(path), str(out / "o.onnx"), "data"]
    assert subprocess.run(command, check=False).returncode == 9
    assert len([name for name in os.listdir(out) if name.endswith(".softq-tmp")]) == 2
    assert not (out / "o.onnx").exists()
    others = [".p.onnx.01234567.softq-tmp", ".o.onnx.0123456.softq-tmp", "o.onnx.01234567.softq-tmp"]
    for name in others:
        (out / name).write_bytes(b"")
    save(load(path), out / "o.onnx")
    assert sorted(os.listdir(out)) == sorted(["o.onnx", "w.bin", *others])


def test_files_of_a_living_writer_are_not_orphans(tmp_path: Path) -> None:
    from softq.modelfile.staging import Staging

    with Staging(str(tmp_path), "o.onnx") as slow:
        slow.write_data([b"12345"])
        save(as_model(plain()), tmp_path / "o.onnx")
        slow.write_model(b"model")
        slow.commit()
    assert sorted(os.listdir(tmp_path)) == ["o.onnx", "o.onnx.data"]
    assert (tmp_path / "o.onnx").read_bytes() == b"model"


def test_existing_output_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "target").write_bytes(b"precious")
    (tmp_path / "o.onnx").symlink_to("far/target")
    save(as_model(plain()), tmp_path / "o.onnx")
    assert (tmp_path / "far" / "target").read_bytes() == b"precious"
    assert not (tmp_path / "o.onnx").is_symlink()
    save(as_model(plain()), tmp_path / "o.onnx")
    np.testing.assert_array_equal(result(tmp_path / "o.onnx"), WEIGHTS[:2])
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "o.onnx").stat().st_mode & 0o777 == 0o666 & ~umask


def test_saving_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = load(write(tmp_path / "m", external()))
    weights = model.graph.initializers["w"].const_value
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    (tmp_path / "out").mkdir()
    save(model, tmp_path / "out" / "o.onnx")
    assert model.graph.initializers["w"].const_value is weights
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


# Hashes and copies


def annotated() -> onnx.ModelProto:
    proto = plain()
    for key in ("one", "two", "three"):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, key
        entry = proto.graph.node[0].metadata_props.add()
        entry.key, entry.value = key, key
    proto.producer_name, proto.producer_version, proto.doc_string = "someone", "1", "words"
    proto.graph.doc_string = proto.graph.node[0].doc_string = proto.graph.input[0].doc_string = "words"
    return proto


def test_graph_hash_sees_the_graph_and_not_its_storage_or_notes(tmp_path: Path) -> None:
    expected = graph_hash(as_model(plain()))
    assert graph_hash(load(write(tmp_path / "a", plain()))) == expected
    assert graph_hash(load(write(tmp_path / "b", external()))) == expected
    assert graph_hash(as_model(annotated())) == expected
    other = plain()
    other.graph.initializer[0].raw_data = bytes(WEIGHTS.nbytes)
    assert graph_hash(as_model(other)) == expected

    def changed(change: Callable[[onnx.ModelProto], object]) -> str:
        proto = plain()
        change(proto)
        return graph_hash(as_model(proto))

    different = {
        changed(lambda p: setattr(p.graph.node[0], "op_type", "Gemm")),
        changed(lambda p: p.graph.node[0].attribute.append(helper.make_attribute("alpha", 2.0))),
        changed(lambda p: setattr(p.graph.node[0], "name", "n")),
        changed(lambda p: setattr(p.opset_import[0], "version", 19)),
        changed(lambda p: p.graph.initializer[0].dims.__setitem__(slice(None), [600, 3])),
        expected,
    }
    assert len(different) == 6


def test_graph_hash_sees_small_constants_and_not_large_ones(tmp_path: Path) -> None:
    def constant(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], raw: bool = True) -> onnx.ModelProto:
        proto = plain()
        tensor = numpy_helper.from_array(values, "c")
        if not raw:
            tensor.ClearField("raw_data")
            tensor.float_data.extend(values.tolist())
        proto.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))
        return proto

    one, two = np.ones(256, np.float32), np.full(256, 2, np.float32)
    hashes = [graph_hash(as_model(constant(values))) for values in (one, two, np.append(one, one), np.append(two, two))]
    assert hashes[0] != hashes[1]
    assert hashes[2] == hashes[3]
    assert graph_hash(as_model(constant(one, raw=False))) == hashes[0]
    prints = [weights_fingerprint(as_model(constant(np.append(v, v)))) for v in (one, two)]
    assert prints[0] != prints[1]


def test_bytes_and_hashes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    path = write(tmp_path, annotated(), data=None)
    code = (
        "import sys; from softq.modelfile import *; m = load(sys.argv[1]); save(m, sys.argv[2]); "
        "print(graph_hash(m), weights_fingerprint(m))"
    )
    seen: set[tuple[str, bytes]] = set()
    for seed in ("0", "1", "77"):
        out = tmp_path / f"{seed}.onnx"
        command = [sys.executable, "-c", code, str(path), str(out)]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        seen.add((text, out.read_bytes()))
    assert len(seen) == 1


def test_fingerprint_is_that_of_the_values_wherever_they_lie(tmp_path: Path) -> None:
    model = load(write(tmp_path / "b", external()))
    expected = weights_fingerprint(as_model(plain()))
    assert weights_fingerprint(model) == expected
    assert weights_fingerprint(as_model(model)) == expected
    typed = plain()
    typed.graph.initializer[0].ClearField("raw_data")
    typed.graph.initializer[0].float_data.extend(WEIGHTS.reshape(-1).tolist())
    assert weights_fingerprint(as_model(typed)) == expected
    turned = as_model(plain())
    turned.graph.initializers["w"].const_value = ir.Tensor(np.asfortranarray(WEIGHTS), name="w")
    assert weights_fingerprint(turned) == expected


@pytest.mark.parametrize("element", [0, 25_000, 49_999])
@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT4, ir.DataType.INT64])
def test_fingerprint_sees_beginning_middle_and_end(dtype: ir.DataType, element: int) -> None:
    def fingerprint(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> str:
        tensor = ir.Tensor(values.astype(dtype.numpy()), dtype=dtype, name="t")
        value = ir.Value(name="t", const_value=tensor)
        graph = ir.Graph([], [], nodes=[], initializers=[value], opset_imports={"": 18})
        return weights_fingerprint(ir.Model(graph, ir_version=10))

    values = np.ones(50_000, np.float32)
    changed = values.copy()
    changed[element] = 2
    assert fingerprint(values) != fingerprint(changed)


def test_strings_have_fingerprints_and_survive(tmp_path: Path) -> None:
    proto = plain()
    proto.graph.initializer.append(numpy_helper.from_array(np.array(["a", "b"], dtype=object), "words"))
    model = as_model(proto)
    save(model, tmp_path / "o.onnx")
    words = load(tmp_path / "o.onnx").graph.initializers["words"].const_value
    assert words is not None
    assert words.numpy().tolist() == [b"a", b"b"]
    proto.graph.initializer[1].string_data[1] = b"c"
    assert weights_fingerprint(as_model(proto)) != weights_fingerprint(model)


def test_as_model_never_changes_its_argument(tmp_path: Path) -> None:
    proto = plain()
    original = load(write(tmp_path, external()))
    for argument in (proto, original, as_model(proto)):
        before = argument if isinstance(argument, onnx.ModelProto) else ir.to_proto(argument)
        before = before.SerializeToString(deterministic=True)
        copy = as_model(argument)
        copy.graph.initializers["w"].name = "renamed"
        copy.graph[0].op_type = "Gemm"
        copy.graph[0].attributes["alpha"] = ir.AttrFloat32("alpha", 2.0)
        copy.graph.inputs[0].name = "other"
        copy.metadata_props["a"] = "b"
        copy.opset_imports[""] = 25
        after = argument if isinstance(argument, onnx.ModelProto) else ir.to_proto(argument)
        assert after.SerializeToString(deterministic=True) == before


def test_as_model_of_a_proto_with_external_data_asks_for_the_path() -> None:
    assert_refused("pass the model's path", lambda: as_model(external()))


def test_as_model_of_a_damaged_model_in_memory() -> None:
    assert_refused("the model proto is not an ONNX model", lambda: as_model(onnx.ModelProto()))
    value = ir.Value(name="nowhere")
    node = ir.Node("", "Relu", [value])
    model = ir.Model(ir.Graph([], [node.outputs[0]], nodes=[node], opset_imports={"": 18}), ir_version=10)
    assert_refused("which nothing computes", lambda: as_model(model))


def test_proto_without_weights_keeps_names_types_and_shapes(tmp_path: Path) -> None:
    model = load(write(tmp_path, external()))
    proto = proto_without_weights(model)
    (tensor,) = proto.graph.initializer
    assert (tensor.name, tensor.data_type, list(tensor.dims)) == ("w", TensorProto.FLOAT, [3, 600])
    assert not tensor.HasField("raw_data")
    assert not tensor.external_data
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)


def test_public_names() -> None:
    assert set(modelfile.__all__) >= {"load", "save", "graph_hash", "weights_fingerprint", "as_model"}
