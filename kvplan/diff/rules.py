"""Which rule of the engine moved a figure, from the figures and rules that both plans carry.

A rule is named when a release that changed it lies between the two plans' releases and the plans' own figures show
its effect; a rule whose effect the figures cannot show is listed without one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvplan.capacity import engine_names
from kvplan.diff.read import PlanDocument
from kvplan.engine_facts import Rule, engine_facts, version_key
from kvplan.engines.vllm.rules import CHECKPOINT_GRAIN, CHECKPOINT_KERNELS
from kvplan.layers.dsa import Dsa
from kvplan.layers.mla import Mla

_LATENT = {Mla.kind, Dsa.kind}


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that differs between the plans."""

    rule: str
    engine: str
    releases: tuple[str, ...]
    """Where it changed, after the older plan's release and up to the newer one's."""
    change: str | None
    """What the figures show of it; None where they show nothing of it."""
    moved: tuple[str, ...]
    """The figures that show it, with both values."""
    effect: str
    source: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """The engine parts of both plans, their inputs, and the layer kinds that both models have."""

    before: dict[str, Any]
    after: dict[str, Any]
    inputs: tuple[dict[str, Any], dict[str, Any]]
    kinds: frozenset[str]

    def rules(self, name: str) -> tuple[Any, Any]:
        return _part(self.before).get(name), _part(self.after).get(name)

    def moved(self, *figures: str) -> tuple[str, ...]:
        """Those of the figures that differ."""
        pairs = {name: (self.before.get(name), self.after.get(name)) for name in figures}
        return tuple(_told_figure(name, *values) for name, values in pairs.items() if values[0] != values[1])

    def typed(self, flag: str | None) -> bool:
        """Whether the user set it, so that a default explains nothing."""
        return flag is not None and any(inputs.get(flag) is not None for inputs in self.inputs)

    def groups(self) -> list[dict[str, Any]]:
        return [*_groups(self.before), *_groups(self.after)]

    @property
    def same_drafts(self) -> bool:
        names = ("num_speculative_tokens", "speculative_config", "draft", "use_replayssm")
        return all(str(self.inputs[0].get(name)) == str(self.inputs[1].get(name)) for name in names)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the figures show of a rule; the release where it is known more closely than the catalogue has it."""

    change: str
    moved: tuple[str, ...]
    release: str | None = None


_Evidence = Callable[[_Pair], _Shown | None]


def rule_changes(before: PlanDocument, after: PlanDocument) -> list[RuleChange]:
    """The rules that changed between the plans' releases. Nothing for different engines or one set of rules."""
    first, second = before.engine or {}, after.engine or {}
    name, older, newer = first.get("name"), first.get("rules_version"), second.get("rules_version")
    if name != second.get("name") or not isinstance(older, str) or not isinstance(newer, str) or older == newer:
        return []
    if name not in engine_names():
        return []
    kinds = frozenset(before.model.layers) & frozenset(after.model.layers)
    pair = _Pair(first | _predicted(before), second | _predicted(after), (before.inputs, after.inputs), kinds)
    evidence = _EVIDENCE if _part(first) and _part(second) else {}
    facts = engine_facts(name)
    found = (_change(facts.title, rule, pair, (older, newer), evidence.get(rule.name)) for rule in facts.rules)
    return sorted((change for change in found if change), key=lambda change: change.change is None)


def _change(
    engine: str, rule: Rule, pair: _Pair, versions: tuple[str, str], evidence: _Evidence | None
) -> RuleChange | None:
    older, newer = sorted(map(version_key, versions))
    between = tuple(step for step in rule.since if older < version_key(step) <= newer)
    shown = evidence(pair) if evidence else None
    if evidence is not None and shown is None:
        return None
    releases = (shown.release,) if shown and shown.release else between
    if not releases:
        return None
    change, moved = (shown.change, shown.moved) if shown else (None, ())
    return RuleChange(rule.name, engine, releases, change, moved, rule.effect, rule.source)


def _predicted(plan: PlanDocument) -> dict[str, int]:
    """A pool that rules decided about, beside the engine's own figures."""
    return {"pool_bytes": plan.pool.bytes} if plan.pool and plan.pool.source == "predicted" else {}


def _part(engine: dict[str, Any]) -> dict[str, Any]:
    part = engine.get("rules")
    return part if isinstance(part, dict) else {}


def _groups(engine: dict[str, Any]) -> list[dict[str, Any]]:
    rows = engine.get("group_list")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _state_blocks(engine: dict[str, Any]) -> int | None:
    """Blocks that each state group takes for a one-token request; every other group takes one."""
    groups, blocks = _groups(engine), engine.get("min_request_blocks")
    states = sum(row.get("kind") == "state" for row in groups)
    if not states or not isinstance(blocks, int) or any(row.get("window") for row in groups):
        return None
    taken, left = divmod(blocks - (len(groups) - states), states)
    return taken if not left else None


def _state_group(pair: _Pair) -> _Shown | None:
    """Another number of blocks per state group in the same mode with the same drafts.

    One more or less, where a prefill kernel began to save checkpoints, is that checkpoint.
    """
    first, second = _state_blocks(pair.before), _state_blocks(pair.after)
    same_mode = pair.before.get("mamba_cache_mode") == pair.after.get("mamba_cache_mode")
    if first is None or second is None or first == second or not same_mode or not pair.same_drafts:
        return None
    same_blocks = not pair.moved("block_tokens")
    moved = pair.moved(*(("blocks_per_max_sequence",) if same_blocks else ()), "min_request_blocks")
    own = _own_kernels(pair)
    if len(own) != 1 or abs(second - first) != 1:
        return _Shown(f"blocks per state group and request {first} → {second}", moved)
    release = ".".join(map(str, CHECKPOINT_KERNELS[own[0]]))
    counts = (0, 1) if second > first else (1, 0)
    return _Shown(f"prefill checkpoint block c {counts[0]} → {counts[1]}", moved, release)


def _own_kernels(pair: _Pair) -> list[str]:
    """Prefill kernels of the models' layer kinds that save checkpoints under one plan's rules only."""
    known = [set(map(str, names)) if isinstance(names, list) else set() for names in pair.rules("checkpoint_kernels")]
    changed = (known[0] ^ known[1]) & CHECKPOINT_KERNELS.keys()
    return sorted(kernel for kernel in changed if any(kind in kernel for kind in pair.kinds))


def _valued(rule: str, what: str, *figures: str, flag: str | None = None) -> _Evidence:
    """Evidence for a rule whose value the plans carry: the value differs, and one of the figures with it."""

    def evidence(pair: _Pair) -> _Shown | None:
        (before, after), moved = pair.rules(rule), pair.moved(*figures)
        if before == after or not moved or pair.typed(flag):
            return None
        return _Shown(f"{what} {_word(before)} → {_word(after)}", moved)

    return evidence


def _defaulted(figure: str, what: str, flag: str) -> _Evidence:
    """Evidence for a default that the figures state: it differs, and the user did not set it."""

    def evidence(pair: _Pair) -> _Shown | None:
        before, after = pair.before.get(figure), pair.after.get(figure)
        if before == after or pair.typed(flag):
            return None
        return _Shown(f"{what} {_word(before)} → {_word(after)}", pair.moved(figure))

    return evidence


def _windows(pair: _Pair) -> _Shown | None:
    if not any(row.get("window") for row in pair.groups()):
        return None
    return _valued("in_flight_batches", "windows count every batch in flight", "blocks_per_max_sequence")(pair)


def _mixed(pair: _Pair) -> _Shown | None:
    growing = [row for row in pair.groups() if row.get("kind") != "state"]
    if len({(row.get("kind"), row.get("window")) for row in growing}) < 2:
        return None
    return _valued("mixed_pages", "mixed pages", "block_bytes", "groups", "group_layers")(pair)


def _alignment(pair: _Pair) -> _Shown | None:
    """Blocks in other multiples: of latent hybrids, of a prefill kernel's checkpoints, or for an unnamed reason.

    Only where nothing but the release was changed.
    """
    typed = [{name: value for name, value in inputs.items() if name != "engine_version"} for inputs in pair.inputs]
    if not pair.moved("block_tokens") or typed[0] != typed[1]:
        return None
    figures = ("block_tokens", "blocks_per_max_sequence")
    if pair.kinds & _LATENT:
        shown = _valued("latent_alignment", "blocks of latent hybrids in multiples of", *figures)(pair)
        if shown is not None:
            return shown
    moved = pair.moved(*figures)
    grains = {CHECKPOINT_GRAIN.get(kernel) for kernel in _own_kernels(pair)}
    grain = grains.pop() if len(grains) == 1 else None
    sizes = [size for engine in (pair.before, pair.after) if isinstance(size := engine.get("block_tokens"), int)]
    if grain and len(sizes) == 2 and [size % grain == 0 for size in sizes].count(True) == 1:
        return _Shown(f"blocks in multiples of the {grain} tokens between prefill checkpoints", moved, "0.33.0")
    return _Shown("blocks aligned otherwise", moved)


def _told_figure(name: str, before: Any, after: Any) -> str:
    values = [_word(value) for value in (before, after)]
    return f"{name} {values[0]} → {values[1]}" if all(len(value) <= 24 for value in values) else name


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "on", False: "off", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


_EVIDENCE: dict[str, _Evidence] = {
    "state blocks per request": _state_group,
    "block alignment": _alignment,
    "group width": _valued("width_ratio", "widest group up to a ratio of", "group_layers", "groups"),
    "GPU KV cache size": _valued("token_line", "the token line counts", "kv_cache_tokens"),
    "window reserve": _windows,
    "mixed page sizes": _mixed,
    "null block": _valued("null_block_in_check", "the null block left out", "longest_max_model_len"),
    "retention of states": _valued(
        "retention_interval", "retention interval", "retained_states", flag="prefix_cache_retention_interval"
    ),
    "gpu_memory_utilization": _valued(
        "gpu_memory_utilization", "default share of memory", "pool_bytes", flag="gpu_memory_utilization"
    ),
    "prefix caching of hybrids": _defaulted("prefix_caching", "prefix caching by default", "enable_prefix_caching"),
    "mamba cache mode with prefix caching": _defaulted("mamba_cache_mode", "cache mode", "mamba_cache_mode"),
    "max_num_batched_tokens": _defaulted(
        "max_num_batched_tokens", "batched tokens by default", "max_num_batched_tokens"
    ),
}
