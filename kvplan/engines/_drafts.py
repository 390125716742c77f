"""Layers that speculation brings along: a draft model's, or the multi-token-prediction blocks of the model itself."""

import json
from typing import Any

from kvplan.deployment import Deployment, Layout
from kvplan.errors import SourceError, UsageError
from kvplan.layers.base import Layer
from kvplan.model import Model
from kvplan.sources import resolve
from kvplan.weights import weigh

_NO_LAYERS = ("ngram", "ngram_gpu", "suffix", "medusa")


def speculation(deployment: Deployment) -> dict[str, Any]:
    """--speculative-config as an object; empty without one. Raises UsageError where it is not a JSON object."""
    if deployment.speculative_config is None:
        return {}
    try:
        found = json.loads(deployment.speculative_config)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("--speculative-config is not a JSON object")
    return found


def draft_tokens(deployment: Deployment) -> int:
    """Speculative tokens per step; 0 without speculation."""
    count = deployment.num_speculative_tokens
    if count is None:
        count = speculation(deployment).get("num_speculative_tokens", 0)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 1024:
        raise UsageError("--speculative-config: num_speculative_tokens is not a number from 0 to 1024")
    return count


def draft_model(deployment: Deployment) -> Model | None:
    """The separate draft that --draft or --speculative-config names; None without one."""
    if not draft_tokens(deployment):
        return None
    asked = speculation(deployment)
    name = deployment.draft or (asked.get("model") if asked.get("method") not in ("mtp", *_NO_LAYERS) else None)
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError("--speculative-config: model is not a name")
    return resolve(name)


def draft_layers(model: Model, deployment: Deployment, tp: int) -> tuple[Layer, ...]:
    """The draft's caches on one rank, empty without speculation.

    Raises UsageError where speculation is asked for and neither a draft nor MTP blocks say what it keeps.
    """
    if not draft_tokens(deployment):
        return ()
    if (draft := draft_model(deployment)) is not None:
        return tuple(mixer.on_rank(tp) for mixer in draft.mixers())
    method = speculation(deployment).get("method")
    if method in _NO_LAYERS:
        return ()
    if not model.mtp and method is not None:
        raise UsageError(
            f"speculation by {str(method)[:20]!r}: name the draft with --draft; {model.name} has no MTP blocks"
        )
    return tuple(mixer.on_rank(tp) for mixer in model.mtp)


def draft_weight_bytes(deployment: Deployment, layout: Layout) -> int | None:
    """Weights of a separate draft on one rank, 0 without one, None where nothing sizes them."""
    draft = draft_model(deployment)
    if draft is None:
        return 0
    try:
        return weigh(draft, layout).rank_bytes
    except SourceError:
        return None
