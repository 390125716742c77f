"""What was measured, and how far it can be trusted."""

from typing import Any

from kvplan.interval import Interval
from kvplan.schemas.build import Fields, Maybe, Open, Part
from kvplan.schemas.common import Document, Number

_SAVING = {
    "context_tokens": int, "bytes": int, "twin_bytes": int, "saving": float, "sequences": int, "twin_sequences": int,
    "faster_alone": Maybe(Interval), "faster_at_largest_batches": Maybe(Interval),
}  # fmt: skip

DOCUMENTS = {
    "kvplan.calibrations/1": Document(
        "calibrations list",
        {
            "calibrations": [
                {
                    "name": str, "device": str | None, "date": str | None, "samples": int, "torch": str | None,
                    "triton": str | None,
                }
            ]
        },
    ),
    "kvplan.calibration/1": Document(
        "calibrations show",
        {
            "device": dict[str, Any], "versions": dict[str, Any], "source": dict[str, Any],
            "samples": [Open({"owner": str, "kernel": str, "median_s": Number})],
            "conditions": Part([dict[str, Any]]),
        },
    ),
    "kvplan.calibration_comparison/1": Document(
        "calibrations compare",
        {
            "shapes_compared": int,
            "shapes": [
                {
                    "kernel": str, "first_s": Number, "second_s": Number, "ratio": Number,
                    "first_owner": Part(str), "second_owner": Part(str), "why": Part(str),
                }
            ],
        },
    ),
    "kvplan.calibration_check/1": Document(
        "calibrations check",
        {
            "goals": {"median": float, "p90": float}, "holds": bool,
            "errors": [
                {
                    "kernel": str, "samples": int, "median": float, "p90": float, "worst": float, "worst_shape": str,
                    "covered": float,
                }
            ],
            "published": [
                {
                    "model": str, "gpu": str, "what": str, "source": str, "low_s": float, "high_s": float,
                    "basis": str, "holds": bool | None, "address": Part(str), "note": Part(str), "sequences": Part(int),
                    "predicted_s": Fields(Interval, more=(("value", float | None),)),
                }
            ],
        },
    ),
    "kvplan.precision/1": Document(
        "calibrations precision",
        {
            "device": dict[str, Any], "versions": dict[str, Any], "source": dict[str, Any], "study": dict[str, Any],
            "errors": [dict[str, Any]], "conditions": Part([dict[str, Any]]),
        },
    ),
    "kvplan.import/1": Document(
        "calibrations import",
        {"path": str, "source": dict[str, Any], "samples": dict[str, int], "rows_left_out": dict[str, int]},
    ),
    "kvplan.savings/1": Document(
        "claims saving",
        {
            "assumptions": [str],
            "models": [{"model": str, "gpu": str, "times": str, "rows": [_SAVING]}],
        },
    ),
}  # fmt: skip
