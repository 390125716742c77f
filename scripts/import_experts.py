"""Writes profiles/calibration/h200-experts.toml: routed experts of two engines, as aiconfigurator-core times them.

    python scripts/import_experts.py FOLDER      (its systems/data)

A few shapes of each format stand for all: times go by the bytes of the experts that are touched and by their tokens.
"""

import sys
from pathlib import Path
from typing import Any

from kvplan.published.aiconfigurator import import_system
from kvplan_kernels.calibration import write

OUT = Path(__file__).parents[1] / "profiles" / "calibration" / "h200-experts.toml"
SHAPES = {
    "bf16": ((2048, 512), (2048, 768), (3072, 1024), (4096, 1024), (6144, 2560), (4096, 1792)),
    "fp8_block": ((2048, 512), (4096, 1024), (4096, 2048), (7168, 2048), (7168, 256)),
    "mxfp4": ((2880, 2880), (2880, 720), (3584, 3072), (3584, 384)),
    "int4": ((7168, 2048), (7168, 256)),
}
"""(hidden, inter on one rank) of each format."""


def main(folder: Path) -> None:
    """Import each width, and keep the shapes named above."""
    document: dict[str, Any] = {}
    kept: list[dict[str, Any]] = []
    for hidden in sorted({hidden for shapes in SHAPES.values() for hidden, _ in shapes}):
        document = import_system("h200_sxm", folder, hidden).document
        kept += [sample for sample in document["samples"] if sample["kernel"] == "moe" and _wanted(sample)]
    versions = {key: value for key, value in document["versions"].items() if key.endswith("_moe")}
    source = document["source"] | {"command": "python scripts/import_experts.py"}
    write(OUT, document | {"versions": versions, "source": source, "samples": kept})


def _wanted(sample: dict[str, Any]) -> bool:
    width = (sample["columns"], sample["rows"] // 3)
    return width in SHAPES.get(sample["format"], ()) and int(sample["tokens_each"]).bit_length() % 2 == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
