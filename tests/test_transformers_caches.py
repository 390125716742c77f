"""The ledger against the bytes of real caches: what transformers held after running a tiny model of each architecture.

tests/golden/transformers_caches.json is a frozen run of scripts/transformers_caches.py. Every block has to agree, kind
by kind, once transformers' own ways of storing are allowed for; those are stated here, once per kind of tensor.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvplan.architectures import read_config
from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.layers.linear import Lightning
from kvplan.ledger import Holding
from kvplan.model import Source

GOLDEN = json.loads((Path(__file__).parent / "golden" / "transformers_caches.json").read_text())

DTYPES = Dtypes(kv="bf16", index="bf16", state="fp32", conv="bf16")
"""Index keys stay in the model's dtype, where engines default to fp8; recurrences are fp32, lightning's apart."""

ROLES = {
    "keys": "kv", "values": "kv", "cross_keys": "kv", "cross_values": "kv", "compressed_kv.compressor": "kv",
    "indexer_keys": "index", "idx_keys": "index", "compressed_kv.indexer": "index",
    "conv_states": "conv", "recurrent_states": "state", "linear_cache": "state",
    "buffer_kv.compressor": "state", "buffer_gate.compressor": "state", "buffer_kv.indexer": "state",
    "buffer_gate.indexer": "state", "overlap_kv.compressor": "state", "overlap_gate.compressor": "state",
    "overlap_kv.indexer": "state", "overlap_gate.indexer": "state",
}  # fmt: skip

QUERY_BESIDE_WINDOW = {"mimo_v2_flash"}
"""transformers reads `sliding_window_size` as that many tokens and the query (configuration_mimo_v2_flash), one more
than vLLM, whose window counts the query."""


WIDE_CONV = {"inkling_text"}
"""Inputs of short convolutions are kept in fp32 (modeling_inkling, InklingShortConvolution); engines keep bf16."""


def ledger(layers: tuple[Layer, ...], tokens: int) -> Counter[str]:
    held = Holding(layers, DTYPES).footprint(tokens)
    return Counter(kv=held.kv + held.window, state=held.state, conv=held.conv, index=held.index)


def difference(layer: Layer, tokens: int, model_type: str) -> Counter[str]:
    """Bytes that transformers keeps beyond the ledger's, negative where it keeps less.

    A window loses its oldest row before it is full, as the newest token is at hand when the cache is read
    (DynamicSlidingWindowLayer.update). A convolution keeps as many inputs as it has taps, one more than the next
    step reads (LinearAttentionLayer.update_conv_state). Lightning attention's matrix follows the values' dtype
    (modeling_minimax).
    """
    if isinstance(layer, WindowOnly):
        return _compressed(layer, tokens)
    more: Counter[str] = Counter()
    for tensor in layer.stored(DTYPES):
        if tensor.role == "conv":
            taps = tensor.shape[0] + 1
            rows_bytes = tensor.entry_bytes // tensor.shape[0] * taps * (2 if model_type in WIDE_CONV else 1)
            more["conv"] += rows_bytes - tensor.entry_bytes
        elif isinstance(layer, Lightning):
            more["state"] -= tensor.entry_bytes // 2
        elif tensor.window is not None and tokens >= tensor.window and model_type not in QUERY_BESIDE_WINDOW:
            more["kv"] -= tensor.entry_bytes
    return more


def _compressed(layer: WindowOnly, tokens: int) -> Counter[str]:
    """DeepSeek V4 (modeling_deepseek_v4): a window row is stored as key and as value. A compressor holds the rows that
    wait for a full group, key and gate in bf16, instead of a ring in fp32; where groups overlap (CSA, which waits with
    both halves of each) also the last full group's first half, its gates in fp32."""
    row, window = layer.head_dim * 2, layer.window
    more = Counter(kv=2 * row * min(tokens, window - 1) - row * min(tokens, window))
    if not isinstance(layer, (Csa, Hca)):
        return more
    waiting, ring = tokens % layer.ratio, ledger((layer,), tokens)["state"]
    if isinstance(layer, Hca):
        more["state"] = waiting * 2 * row - ring
        return more
    width = layer.head_dim + layer.index_head_dim
    overlap = layer.ratio * width * (2 + 4) if tokens >= layer.ratio else 0
    more["state"] = waiting * 2 * 2 * width * 2 + overlap - ring
    return more


def measured(row: dict[str, Any], blocks: int) -> list[Counter[str]]:
    """Bytes by kind for each block, which transformers may count as several layers of its own (LongCat)."""
    found: list[Counter[str]] = [Counter() for _ in range(blocks)]
    for name, sizes in row["bytes"].items():
        per_block, rest = divmod(len(sizes), blocks)
        assert not rest
        for number, size in enumerate(sizes):
            found[number // per_block][ROLES[name]] += size
    return found


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=[case["name"] for case in GOLDEN["cases"]])
def test_every_layer_of_a_real_cache(case: dict[str, Any]) -> None:
    model = read_config(case["config"], name=case["name"], source=Source("generated"))
    for row in case["rows"]:
        tokens, total = row["tokens"], 0
        blocks = measured(row, len(model.blocks))
        for number, (block, found) in enumerate(zip(model.blocks, blocks, strict=True)):
            ours = ledger(block, tokens)
            for layer in block:
                for kind, more in difference(layer, tokens, model.model_type).items():
                    ours[kind] += more
                    total += more
            assert {kind: ours[kind] for kind in ours if ours[kind]} == {
                kind: found[kind] for kind in found if found[kind]
            }, (number, tokens)
        assert Holding(model.mixers(), DTYPES).bytes(tokens) + total == sum(found.total() for found in blocks)


def test_many_architectures_and_both_sides_of_a_window() -> None:
    assert len({case["config"]["model_type"] for case in GOLDEN["cases"]}) >= 60
    full = {case["name"] for case in GOLDEN["cases"] if _windows_filled(case)}
    assert len(full) >= 14, full


def _windows_filled(case: dict[str, Any]) -> bool:
    """A window that stood empty in part after the first prefill, and was full after the last."""
    config = case["config"]
    model = read_config(config, name=case["name"], source=Source("generated"))
    breaks = Holding(model.mixers(), DTYPES).breaks()
    lengths = [row["tokens"] for row in case["rows"]]
    return any(lengths[0] < window < lengths[-1] for window in breaks)
