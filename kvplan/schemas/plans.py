"""Plans, logs and what is made of them."""

from typing import Any, Literal

from kvplan.cases import Refused
from kvplan.diff.rules import RuleChange
from kvplan.document import ENGINE_FIGURES, Assumption, Ends, Plan
from kvplan.schemas.build import Fields, Maybe, Open, Part
from kvplan.schemas.common import ENGINE, Document, Number
from kvplan.verify.report import Report, Row

_CHANGE = {
    "name": str, "before": str | Number | bool | None, "after": str | Number | bool | None,
    "context_tokens": int | None, "change": float | None,
}  # fmt: skip
_FIGURES = dict.fromkeys(ENGINE_FIGURES, Any)
_COLUMN = {
    "label": str, "model": str, "gpu": str | None, "layout": dict[str, int] | None, "engine": Maybe(ENGINE),
    "layers": dict[str, int], "params_total": int | None, "params_active": int | None, "weights_bytes": int | None,
    "max_context_tokens": int | None, "kv_cache_dtype": str, "mamba_ssm_dtype": str | None,
    "bytes_per_token": Number, "state_bytes": int, "window_bytes": int, "baseline": str | None,
    "break_even_tokens": int | None, "weights_bytes_per_gpu": int | None, "pool_bytes": int | None,
    "pool_low_bytes": int | None, "pool_high_bytes": int | None, "fits": str | None,
    "contexts": [
        {
            "context_tokens": int, "total_bytes": int, "saving": float | None, "rank_bytes": int | None,
            "sequences": int | None, "low": int | None, "high": int | None, "ideal": int | None,
            "deployment_sequences": int | None, "binds": str | None,
            "tpot_ms": Part(Maybe(Fields(Ends))), "ttft_s": Part(Maybe(Fields(Ends))),
        }
    ],
    "assumptions": [Assumption],
}  # fmt: skip

DOCUMENTS = {
    "kvplan.plan/1": Document(
        "estimate",
        Fields(Plan, more=(("engine", Maybe(Open(ENGINE | {"summary": str} | _FIGURES))),)),
        whole=True,
    ),
    "kvplan.verify/1": Document(
        "verify",
        Fields(
            Report,
            more=(
                ("schema", Literal["kvplan.verify/1"]), ("kvplan_version", str),
                ("lines", [Fields(Row, without=("places",))]),
            ),
        ),
        whole=True,
    ),
    "kvplan.diff/1": Document(
        "diff",
        {
            "inputs_changed": [_CHANGE], "bytes": [_CHANGE], "pool": [_CHANGE], "engine": [_CHANGE],
            "rules": [RuleChange], "capacity": [_CHANGE], "deployment_capacity": [_CHANGE],
            "verdict": {"drops_too_much": bool, "worst": Maybe(_CHANGE)},
        },
    ),
    "kvplan.compare/1": Document("compare", {"columns": [_COLUMN], "refused": [Refused]}),
    "kvplan.report/1": Document(
        "report, claims report",
        {
            "command": str, "pages": [{"name": str, "title": str, "numbers": dict[str, Any]}],
            "left_out": [{"page": str, "title": str, "reason": str}],
        },
    ),
}  # fmt: skip
