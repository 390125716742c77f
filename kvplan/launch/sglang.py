"""What SGLang's flags mean where they need more than another name."""

from typing import TYPE_CHECKING, Any

from kvplan.launch.numbers import absent, whole
from kvplan.launch.shared import layout, model_name, take_quantization, weights_dtype

if TYPE_CHECKING:
    from kvplan.launch.reading import Reading

_BLOCKS = {"speculative-dflash-block-size": 0, "speculative-dspark-block-size": 1}
"""Draft blocks: how many tokens more than the block one step verifies."""


def translate(values: dict[str, Any], into: "Reading") -> None:
    """SGLang's flags → kvplan's."""
    model_name(values, into, "model-path")
    _attention_dp(values, into)
    layout(values, into, tp="tp-size", dp="dp-size")
    weights_dtype(values, into)
    take_quantization(values, into)
    _drafts(values, into)
    into.rest({flag: value for flag, value in values.items() if not absent(value)})


def _attention_dp(values: dict[str, Any], into: "Reading") -> None:
    """`--attn-dp-size N` is the newer spelling of `--enable-dp-attention --dp-size N`."""
    width = values.pop("attn-dp-size", None)
    width = 1 if absent(width) else whole(width, "attn-dp-size")
    if width > 1:
        values["dp-size"] = width
        values["enable-dp-attention"] = True


def _drafts(values: dict[str, Any], into: "Reading") -> None:
    """Tokens that one verification step carries, from whichever flag says so."""
    tokens = values.pop("speculative-num-draft-tokens", None)
    for flag, more in _BLOCKS.items():
        block = values.pop(flag, None)
        if not absent(block):
            tokens = whole(block, flag) + more
    steps = values.pop("speculative-num-steps", None)
    topk = values.pop("speculative-eagle-topk", None)
    if absent(tokens) and not absent(steps) and (absent(topk) or whole(topk, "speculative-eagle-topk") == 1):
        tokens = whole(steps, "speculative-num-steps") + 1
    if not absent(tokens):
        into.set(
            "speculative_num_draft_tokens",
            whole(tokens, "speculative-num-draft-tokens"),
            "speculative-num-draft-tokens",
        )
