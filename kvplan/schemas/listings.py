"""What kvplan knows: models, GPUs, engines, claims."""

from typing import Any

from kvplan.claims import schema as claims
from kvplan.claims.judge import Comparison
from kvplan.engine_facts import EngineFacts
from kvplan.gpu import Gpu
from kvplan.model import Published, Source
from kvplan.schemas.build import Fields, Map, OneOf
from kvplan.schemas.common import Document, Number

_LAYER = {"kind": str, "count": int, "dimensions": [str]}
_FIGURE = {
    "quantity": str, "model": str, "flags": dict[str, Any], "arguments": dict[str, Any], "times": Number | None,
    "complement": bool, "over": dict[str, Any] | None, "sort": str, "value": Number | None, "needs": str | None,
    "low": Number | None, "high": Number | None, "inputs": dict[str, Any], "arithmetic": [dict[str, Any]],
}  # fmt: skip
_JUDGED = {
    "name": str, "claim": str, "source": claims.Published, "printed": [claims.Printed], "verdict": str,
    "basis": str | None, "detail": str, "expected": claims.Expected, "as_expected": bool, "remark": str,
    "bases": [
        {"name": str, "agrees": bool | None, "comparisons": [Comparison], "figures": Map(_FIGURE)},
    ],
}  # fmt: skip

DOCUMENTS = {
    "kvplan.schemas/1": Document("schema", {"schemas": [{"name": str, "printed_by": str}]}),
    "kvplan.models/1": Document("models list", {"models": [dict.fromkeys(("name", "hf_id", "source", "date"), str)]}),
    "kvplan.model/1": Document(
        "models show",
        {
            "name": str, "model_type": str, "architecture": str, "dtype": str, "max_context_tokens": int | None,
            "state_dtype": str | None, "kv_cache_dtype": str | None, "num_experts": int, "experts_per_token": int,
            "source": Source, "published": Published, "weights_missing": str | None, "defaults": [str],
            "unread": [str], "layers": [_LAYER],
        },
    ),
    "kvplan.model_types/1": Document("models types", {"model_types": [{"model_type": str}]}),
    "kvplan.gpus/1": Document(
        "gpus list",
        {
            "gpus": [
                {
                    "name": str, "memory_bytes": int, "memory": str, "quality": str, "bandwidth_gb_per_s": int,
                    "aliases": [str],
                }
            ]
        },
    ),
    "kvplan.gpu/1": Document("gpus show", Fields(Gpu, without=("schema",))),
    "kvplan.engines/1": Document("engines list, engines show", {"engines": [EngineFacts]}),
    "kvplan.claims/1": Document(
        "claims list, claims show, claims check",
        OneOf((
            {"claims": [Fields(claims.Claim, more=(("name", str),), sparse=True)]},
            {"claims": [_JUDGED]},
            {"holds": bool, "verdicts": dict[str, int], "claims": [_JUDGED]},
        )),
    ),
}  # fmt: skip
