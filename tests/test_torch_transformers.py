"""Models of transformers with softq's attention: what they are with their own, and nothing of the future."""

from __future__ import annotations

import contextlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from softq.errors import UsageError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import softq.torch as st  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": {"num_key_value_heads": 2},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6},
    "GptOss": {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
               "sliding_window": 6},
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore")


def make(name: str, task: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{task}")(getattr(transformers, f"{name}Config")(**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Fresh weights give rows that are nearly flat.
            parameter.mul_(3 if parameter.dim() > 1 else 1)
    st.register("softq-exact", method="exact")
    st.register("softq", bits=3)
    return model


def run(model: Any, implementation: str, **inputs: Any) -> Any:
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(**inputs)[0]


def tokens() -> Any:
    return torch.randint(0, 97, (2, 20), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_is_as_with_its_own_attention(name: str) -> None:
    model = make(name, "ForCausalLM", **SIZES, **DECODERS[name])
    padded = torch.ones(2, 20, dtype=torch.long)
    padded[0, :5] = 0
    inputs = {"input_ids": tokens(), "attention_mask": padded}
    own, exact, coarse = (run(model, one, **inputs)[padded.bool()] for one in ("eager", "softq-exact", "softq"))
    torch.testing.assert_close(exact, own, rtol=0, atol=1e-6)
    assert float((coarse - own).abs().max()) > 1e-3
    for cache in ({}, {"cache_implementation": "static"}):
        model.set_attn_implementation("eager")
        wanted = model.generate(**inputs, max_new_tokens=12, do_sample=False, **cache)
        model.set_attn_implementation("softq-exact")
        assert torch.equal(model.generate(**inputs, max_new_tokens=12, do_sample=False, **cache), wanted)


@pytest.mark.parametrize("name", DECODERS)
def test_nothing_of_the_future_leaks(name: str) -> None:
    model = make(name, "ForCausalLM", **SIZES, **DECODERS[name])
    before = tokens()
    after = before.clone()
    after[:, -1] = (after[:, -1] + 1) % 97
    first, second = (run(model, "softq", input_ids=x) for x in (before, after))
    assert torch.equal(first[:, :-1], second[:, :-1])
    assert not torch.equal(first[:, -1], second[:, -1])


def test_encoders_are_as_with_their_own_attention() -> None:
    bert = make("Bert", "Model", **SIZES)
    image = make("ViT", "Model", **{k: v for k, v in SIZES.items() if k.endswith(("size", "layers", "heads"))
                                    and k != "vocab_size"}, image_size=32, patch_size=8)  # fmt: skip
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    for model, inputs in ((bert, {"input_ids": tokens()}), (image, {"pixel_values": pixels})):
        own, exact, coarse = (run(model, one, **inputs) for one in ("eager", "softq-exact", "softq"))
        torch.testing.assert_close(exact, own, rtol=0, atol=1e-6)
        assert float((coarse - own).abs().max()) > 1e-3


def test_a_config_names_methods_and_is_saved_with_the_model(tmp_path: Any) -> None:
    model = make("Llama", "ForCausalLM", **SIZES, **DECODERS["Llama"])
    inputs = {"input_ids": tokens()}
    usual = run(model, "softq", **inputs)
    exact = run(model, "softq-exact", **inputs)
    model.config.softq = {"method": "exact"}
    assert torch.equal(run(model, "softq", **inputs), exact)
    model.config.softq = {"layers": {"1": {"bits": 2}}}
    mixed = run(model, "softq", **inputs)
    assert not torch.equal(mixed, usual)
    model.save_pretrained(tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="softq").eval()
    assert torch.equal(run(again, "softq", **inputs), mixed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("exact", "is 'exact'; expected an object"),
        ({"layer": {"0": {"bits": 3}}}, "has no option 'layer'"),
        ({"bits": 99}, "bits is 99"),
        ({"bits": {3}}, "not JSON serializable"),
        ({"layers": {"2": {"bits": 3}}}, "has layers 2; the model has 2"),
        ({"layers": {"0": 3}}, "layer 0 is 3; expected an object"),
        ({"r": "site", "fitted": {"r": 2.0}}, "fitted numbers are given for"),
    ],
)
def test_a_config_that_says_nothing_known_is_refused(config: Any, message: str) -> None:
    model = make("Llama", "ForCausalLM", **SIZES, **DECODERS["Llama"])
    model.config.softq = config
    with pytest.raises(UsageError, match=rf"^config\.softq.*{message}"):
        run(model, "softq", input_ids=tokens())


def test_layers_that_have_no_number_get_no_method_of_their_own() -> None:
    model = make("ViT", "Model", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 image_size=32, patch_size=8)  # fmt: skip
    model.config.softq = {"layers": {"0": {"bits": 2}}}
    with pytest.raises(UsageError, match="does not know its own number"):
        run(model, "softq", pixel_values=torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("name", ["Llama", "GptOss"])
def test_attentions_are_given_out_as_weights(name: str) -> None:
    model = make(name, "ForCausalLM", **SIZES, **DECODERS[name])
    outputs: dict[str, Any] = {}
    for implementation in ("eager", "softq-exact", "softq"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            outputs[implementation] = model(input_ids=tokens(), output_attentions=True)
    for own, exact in zip(outputs["eager"].attentions, outputs["softq-exact"].attentions, strict=True):
        torch.testing.assert_close(exact, own, rtol=0, atol=1e-6)
    for layer in outputs["softq"].attentions:
        assert layer.shape == (2, 4, 20, 20)
        # With 3 bits there are 8 codes, the last of which is 0.
        assert all(len(row[row > 0].unique()) <= 7 for head in layer[0] for row in head)
    torch.testing.assert_close(outputs["softq"].logits, run(model, "softq", input_ids=tokens()))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("softq-exact", 1.0), ("softq", 0.9)])
def test_a_model_compiles_without_a_break(name: str, share: float) -> None:
    model = make("Llama", "ForCausalLM", **SIZES, **DECODERS["Llama"])
    ids = torch.arange(20).reshape(2, 10)
    wanted = run(model, name, input_ids=ids)
    with torch.no_grad():
        found = torch.compile(model, fullgraph=True)(input_ids=ids)[0]
    # Scores that are rounded in another order may have other codes.
    assert float((found - wanted).abs().lt(1e-4).float().mean()) >= share


def test_a_paged_cache_is_refused() -> None:
    model = make("Llama", "ForCausalLM", **SIZES, **DECODERS["Llama"])
    model.set_attn_implementation("softq")
    attention = model.model.layers[0].self_attn
    forward = transformers.AttentionInterface()["softq"]
    parts = [torch.zeros(1, 4, 3, 8) for _ in range(3)]
    with pytest.raises(UsageError, match="paged cache"):
        forward(attention, *parts, None, cache=object())


@pytest.mark.slow
def test_the_page_runs() -> None:
    page = (Path(__file__).parent.parent / "docs" / "pytorch.md").read_text("utf-8")
    parts = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert parts
    for part in parts:
        exec(part, {})


def test_an_unknown_method_is_refused_when_it_is_registered() -> None:
    with pytest.raises(UsageError, match="no-such"):
        st.register(method="no-such")


def make_named(name: str, task: str, **options: Any) -> Any:
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = "softq"
    return getattr(transformers, f"{name}{task}")(config)


LONE: dict[str, tuple[str, dict[str, Any]]] = {
    "Bloom": ("Model", {"hidden_size": 32, "n_layer": 1, "n_head": 4, "vocab_size": 97}),
    "Mpt": ("Model", {"d_model": 32, "n_layers": 1, "n_heads": 4, "vocab_size": 97}),
    "Falcon": ("Model", {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 97}),
    "DebertaV2": ("Model", SIZES),
    "GroupViTText": ("Model", SIZES),
}


@pytest.mark.parametrize("name", LONE)
def test_a_model_whose_attentions_do_not_ask_for_a_name_is_warned_of(name: str) -> None:
    task, options = LONE[name]
    st.register("softq", bits=3)
    with (
        # Falcon has a table of its own, and the name is not in it.
        contextlib.suppress(*([KeyError] if name == "Falcon" else [])),
        pytest.warns(UserWarning, match=r"do not ask transformers .* 'softq' changes nothing in them; softq\.torch"),
    ):
        make_named(name, task, **options)


def test_a_model_that_asks_is_not_warned_of() -> None:
    st.register("softq", bits=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for name, task in (("Llama", "ForCausalLM"), ("Bert", "Model"), ("T5", "Model")):
            own = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 1, "vocab_size": 97}
            make_named(name, task, **(own if name == "T5" else SIZES))
        # Another implementation is no affair of softq's.
        transformers.BloomModel(transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=4, vocab_size=97))


def test_a_part_without_the_name_is_warned_of_alone() -> None:
    """SigLIP's pooling head takes torch's own attention; its layers ask."""
    st.register("softq", bits=3)
    sizes = {k: v for k, v in SIZES.items() if k != "vocab_size"}
    with pytest.warns(UserWarning, match=r"attentions of SiglipVisionModel \(MultiheadAttention\) do not ask"):
        make_named("SiglipVision", "Model", **sizes, image_size=16, patch_size=8)
