"""Build tiny random models of many architectures in transformers, run them, and print what their caches hold.

    python scripts/transformers_caches.py [--only NAME] > tests/golden/transformers_caches.json

Needs a CPU build of torch and transformers 5.24 (development only). A model keeps the head, state, window, latent and
convolution sizes of its shipped profile, or of the release named in its row, and loses layers, experts, vocabulary and
MLP width. One row of figures is one moment: tokens seen, and bytes of every tensor in the cache by name and layer.
tests/test_transformers_caches.py compares kvplan with a frozen run.
"""

import argparse
import importlib
import json
from collections import Counter

import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, EncoderDecoderCache
from transformers.masking_utils import sdpa_mask
from transformers_tiny_configs import CASES, reduced

DECODE = 2
IMAGE_TOKENS = 4 * (40 * 40 + 1)
"""Mllama: four tiles of 560 pixels in patches of 14, and a class token each."""
TEXT_MODELS = {
    "mllama": "transformers.models.mllama.modeling_mllama.MllamaTextModel",
    "step3p5": "transformers.models.step3p7.modeling_step3p7.Step3p7TextModel",
}  # AutoModel has none, or one with a vision tower


def tensors(value, path=()):
    """Every tensor of an object, by the names that lead to it; positions in lists and numbered states are left out."""
    if torch.is_tensor(value):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not str(key).startswith("_"):  # bookkeeping, such as the window's own length
                yield from tensors(inner, path if isinstance(key, int) else (*path, key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors(inner, path)


def held(cache):
    """Bytes of every tensor in the cache: name → one number per layer of transformers."""
    if isinstance(cache, EncoderDecoderCache):
        cross = {f"cross_{name}": sizes for name, sizes in held(cache.cross_attention_cache).items()}
        return held(cache.self_attention_cache) | cross
    rows = [Counter() for _ in cache.layers]
    apart = {name: value for name, value in vars(cache).items() if name != "layers" and isinstance(value, list)}
    for number, (row, layer) in enumerate(zip(rows, cache.layers, strict=True)):
        beside = {name: value[number] for name, value in apart.items() if number < len(value)}
        for name, tensor in tensors(vars(layer) | beside):
            row[name] += tensor.numel() * tensor.element_size()
    return {name: [row[name] for row in rows] for name in sorted(set().union(*rows))}


def step(model, tokens, cache=None):
    ids = torch.randint(3, 60, (1, tokens))
    if model.config.is_encoder_decoder:
        bins, frames = model.config.num_mel_bins, 2 * model.config.max_source_positions
        inputs = {"input_features": torch.zeros(1, bins, frames, dtype=model.dtype), "decoder_input_ids": ids}
    else:
        inputs = {"input_ids": ids}
    if model.config.model_type == "mllama_text_model" and cache is None:
        inputs["cross_attention_states"] = torch.zeros(1, IMAGE_TOKENS, model.config.hidden_size, dtype=model.dtype)
    with torch.no_grad():
        return model(**inputs, use_cache=True, cache=cache).cache


def wide_attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """Attention in fp32: long prefills in bf16 take minutes on a CPU. What is cached has been cached by then."""
    causal = attention_mask is None and query.shape[2] > 1
    wide = (tensor.float() for tensor in (query, key, value))
    out = scaled_dot_product_attention(
        *wide, attn_mask=attention_mask, is_causal=causal, scale=scaling, enable_gqa=True
    )
    return out.to(query.dtype).transpose(1, 2).contiguous(), None


def build(config, attention):
    """The decoder of a config, randomly initialised, in bf16."""
    kind = config["model_type"]
    whole = transformers.CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))
    built = whole if whole.is_encoder_decoder else whole.get_text_config(decoder=True)
    how = {"dtype": torch.bfloat16} | ({"attn_implementation": attention} if attention else {})
    if kind not in TEXT_MODELS:
        return AutoModel.from_config(built, **how).eval()
    module, name = TEXT_MODELS[kind].rsplit(".", 1)
    return getattr(importlib.import_module(module), name)._from_config(built, **how).eval()


def measure(config, prefills):
    """Run a model; figures after each prefill and after the decode steps that follow it."""
    model, rows = build(config, "wide" if max(prefills) > 1000 else None), []
    for tokens in prefills:
        cache = step(model, tokens)
        rows.append({"tokens": tokens, "bytes": held(cache)})
        for _ in range(DECODE):
            cache = step(model, 1, cache)
        rows.append({"tokens": tokens + DECODE, "bytes": held(cache)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="one case, by name; repeatable")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    AttentionInterface.register("wide", wide_attention)
    AttentionMaskInterface.register("wide", sdpa_mask)
    head = {"transformers": transformers.__version__, "dtype": "bfloat16", "source": "scripts/transformers_caches.py"}
    print(json.dumps(head)[:-1] + ',\n"cases": [', end="")
    before = "\n"
    for name, (base, patch, prefills) in CASES.items():
        if args.only and name not in args.only:
            continue
        config = reduced(base, patch)
        try:
            rows = measure(config, prefills)
        except Exception as error:
            raise SystemExit(f"{name}: {error!r}") from error
        sizes = base if isinstance(base, str) else "written out"
        case = {"name": name, "sizes": sizes, "config": config, "rows": rows}
        print(before + json.dumps(case, separators=(",", ":")), end="", flush=True)
        before = ",\n"
    print("\n]}")


if __name__ == "__main__":
    main()
