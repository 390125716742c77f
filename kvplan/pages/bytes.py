"""Page 2: what one sequence keeps at each length, by kind of layer, beside its baseline."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kvplan.cases import Case
from kvplan.engines.base import snapshots_of
from kvplan.ledger import Holding
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import Numbers, Page
from kvplan.pages._subject import Subject, grid
from kvplan.pages._text import clean, short_names
from kvplan.plan import baseline_of
from kvplan.units import GIB, format_short, format_tokens


class Bytes(Page[Subject]):
    name = "bytes"
    title = "What one sequence keeps, by kind of layer"
    order = 20

    def sheets(self, subject: Subject) -> list[Numbers]:
        return [
            {
                "subtitle": subject.subtitle,
                "panels": [_panel(case) for case in subject.cases],
                "notes": [_note(subject)],
                "sources": [clean(case.model.source.origin) for case in subject.cases],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        shown = numbers["panels"]
        with_linear = len(shown) <= 2
        rows, columns = (len(shown), 2) if with_linear else draw.grid_of(len(shown))
        axes = draw.panels(figure, rows, columns, label_pt=104 if columns < 3 else 88)
        names = short_names([clean(one["model"]) for one in shown], draw.size_pt(axes[0])[0], 10.0, bold=True)
        for place, one in enumerate(shown):
            _logarithmic(axes[2 * place if with_linear else place], one, names[place])
            if with_linear:
                _linear(axes[2 * place + 1], one, names[place])
        for spare in axes[len(shown) * (2 if with_linear else 1) :]:
            spare.remove()


def _panel(case: Case) -> dict[str, Any]:
    lengths = grid(case)
    turn = case.plan.crossings.break_even_tokens
    if turn is not None and lengths[0] < turn < lengths[-1]:
        lengths = sorted({*lengths, turn})
    dtypes = case.now.dtypes
    kinds: list[dict[str, Any]] = []
    for kind in dict.fromkeys(mixer.kind for mixer in case.model.mixers()):
        held = Holding((mixer for mixer in case.model.mixers() if mixer.kind == kind), dtypes)
        sizes = [held.bytes(tokens) for tokens in lengths]
        if any(sizes):
            kinds.append({"kind": kind, "layers": case.model.layer_counts()[kind], "grows": held.growth() > 0,
                          "bytes": sizes})  # fmt: skip
    whole = Holding(case.model.mixers(), dtypes)
    saved = [snapshots_of(case.deployment, tokens) * whole.snapshot_bytes() for tokens in lengths]
    if any(saved):
        kinds.append({"kind": "snapshots", "layers": 0, "grows": True, "bytes": saved})
    kinds.sort(key=lambda one: bool(one["grows"]))
    twin = baseline_of(case.model, case.deployment)
    against = Holding(twin.mixers(), dtypes) if twin else None
    return {
        "model": case.label,
        "tokens": lengths,
        "kinds": kinds,
        "total_bytes": [sum(one["bytes"][index] for one in kinds) for index in range(len(lengths))],
        "baseline": {"name": twin.name, "bytes": [against.bytes(tokens) for tokens in lengths]}
        if twin and against
        else None,
        "break_even_tokens": turn,
    }


def _note(subject: Subject) -> str:
    plain = [case.label for case in subject.cases if baseline_of(case.model, case.deployment) is None]
    said = (
        "Whole model, exact arithmetic on the config; layers that keep a fixed state lie at the bottom. On a "
        "logarithmic axis the heights of areas cannot be compared."
    )
    if plain and len(plain) < len(subject.cases):
        return f"{said} No baseline: {', '.join(map(clean, plain))} (nothing but full attention, or none)."
    return f"{said} No baseline: nothing but full attention, or none." if plain else said


def _colors(kinds: list[dict[str, Any]]) -> list[str]:
    """Warm colours for what is fixed, cold ones for what grows."""
    fixed, growing = iter(style.STATES * 4), iter(style.KINDS * 4)
    return [next(growing) if one["grows"] else next(fixed) for one in kinds]


def _stack(axes: Axes, panel: dict[str, Any], floor: float, first: int = 0) -> list[tuple[float, str, str]]:
    """The areas, and a label for each at its right end."""
    tokens, below = panel["tokens"][first:], [0] * (len(panel["tokens"]) - first)
    labels = []
    for one, color in zip(panel["kinds"], _colors(panel["kinds"]), strict=True):
        sizes = one["bytes"][first:]
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        axes.fill_between(
            tokens, [max(floor, low / GIB) for low in below], [max(floor, high / GIB) for high in above], color=color,
            linewidth=0,
        )  # fmt: skip
        bottom, top = max(floor, below[-1] / GIB), max(floor, above[-1] / GIB)
        middle = (bottom * top) ** 0.5 if axes.get_yscale() == "log" else (bottom + top) / 2
        count = f"{one['layers']} " if one["layers"] else ""
        labels.append((middle, f"{count}{one['kind']} {format_short(sizes[-1])}", draw.dark(color)))
        below = above
    return labels


def _against(axes: Axes, panel: dict[str, Any], first: int = 0) -> list[tuple[float, str, str]]:
    """The baseline, dashed, and its label."""
    twin = panel["baseline"]
    if twin is None:
        return []
    axes.plot(panel["tokens"][first:], draw.gib(twin["bytes"][first:]), color=style.INK, linestyle=(0, (4, 2)))
    return [(twin["bytes"][-1] / GIB, f"{clean(twin['name'])} {format_short(twin['bytes'][-1])}", style.INK)]


def _logarithmic(axes: Axes, panel: dict[str, Any], name: str) -> None:
    sizes = [*panel["total_bytes"], *(panel["baseline"] or {"bytes": []})["bytes"]]
    least = min(size for size in sizes if size) / GIB
    floor = least / 3
    draw.log_axis(axes, "GiB per sequence (log)", floor, max(sizes) / GIB * 5)
    draw.token_axis(axes, panel["tokens"][0], panel["tokens"][-1])
    labels = _stack(axes, panel, floor) + _against(axes, panel)
    draw.end_labels(axes, labels)
    _mark(axes, panel)
    draw.title(axes, name)


def _linear(axes: Axes, panel: dict[str, Any], name: str) -> None:
    top = max([*panel["total_bytes"], *(panel["baseline"] or {"bytes": []})["bytes"]]) / GIB
    axes.set_xlim(0, panel["tokens"][-1])
    axes.set_ylim(0, top * 1.05)
    labels = _stack(axes, panel, 0.0) + _against(axes, panel)
    last = panel["tokens"][-1]
    axes.set_xticks([round(last * part / 4) for part in range(5)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tokens(round(value)) if value else "0"))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("context, tokens (K = 1,024)")
    axes.set_ylabel("GiB per sequence")
    draw.end_labels(axes, labels)
    draw.title(axes, "the same, not logarithmic")


def _mark(axes: Axes, panel: dict[str, Any]) -> None:
    """The length from which on the model stores less than its baseline."""
    turn = panel["break_even_tokens"]
    if turn is None or turn not in panel["tokens"]:
        return
    size = panel["total_bytes"][panel["tokens"].index(turn)] / GIB
    axes.plot([turn], [size], marker="o", markersize=6, color=style.VERMILION, markeredgecolor="white")
    right = turn**2 > panel["tokens"][0] * panel["tokens"][-1]
    top = axes.get_ylim()[1]
    axes.plot([turn, turn], [size, top], color=style.VERMILION, linewidth=0.9, linestyle=":")
    axes.annotate(
        f"stores less from\n{turn:,} tokens on", (turn, top), xytext=(-4 if right else 4, -3),
        textcoords="offset points", fontsize=style.SMALL_PT, ha="right" if right else "left", va="top",
    )  # fmt: skip


PAGE = Bytes()
