"""Write every report of reports/ anew, and the index that shows its pages: `just reports`, from the checkout."""

import json
import subprocess
import sys
from pathlib import Path

REPORTS = {
    "k3-8xb300": (
        "Kimi K3 on eight B300, fp8 cache, by vLLM's rules",
        "report kimi-k3 --gpu B300:8 --kv-cache-dtype fp8 --engine vllm --workload coding-agent",
    ),
    "kimi-linear-h200": (
        "Kimi Linear on one H200, with the times that measured kernels give",
        "report kimi-linear --gpu H200 --calibration h200 --workload coding-agent",
    ),
    "qwen3-next-2xh100": (
        "Qwen3-Next on two H100, weights in fp8 (in bf16 they leave no room for a cache)",
        "report qwen3-next --gpu H100:2 --quantization fp8 --calibration auto --workload coding-agent",
    ),
    "claims": ("Published claims about Kimi K3's memory, re-derived", "claims report"),
}
HEAD = """# Reports

Each was written by the command above its pages, from the root of the checkout; `just reports` writes all of them
anew, to the same bytes on the same release of matplotlib. The JSON beside a PDF holds every number that its pages show.

The kernels measured on an H200 have a page of their own: [table, roofline and bandwidth](h200/table.md), written by
`kvplan bench`'s `python -m kvplan_kernels report`.
"""


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    parts = [HEAD]
    for name, (title, words) in REPORTS.items():
        folder = f"reports/{name}"
        for old in (root / folder).glob("*.png"):
            old.unlink()
        given = f"{words} -o {folder}/report.pdf --png {folder}"
        subprocess.run([sys.executable, "-m", "kvplan", *given.split()], cwd=root, check=True)
        parts.append(_section(root / folder, name, title, given))
    (root / "reports" / "README.md").write_text("\n".join(parts), encoding="utf-8")


def _section(folder: Path, name: str, title: str, given: str) -> str:
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    titles = [page["title"] for page in document["pages"]]
    pictures = sorted(folder.glob("*.png"), key=lambda path: int(path.name.partition("-")[0]))
    lines = [f"## {title}", "", "```bash", f"kvplan {given}", "```", ""]
    lines += [f"[PDF]({name}/report.pdf), [JSON]({name}/report.json).", ""]
    for one in document["left_out"]:
        lines += [f"Left out: {one['title']}: {one['reason']}.", ""]
    for words, picture in zip(titles, pictures, strict=True):
        lines += [f"![{words}]({name}/{picture.name})", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
