"""`kvplan engines`: rules with their releases, and a parity matrix in which every cell has a public source."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kvplan import engine_facts, profiles
from kvplan.engine_facts import FEATURES
from kvplan.engines.sglang import rules as sglang_rules
from kvplan.engines.vllm import rules as vllm_rules
from kvplan.errors import ProfileError, UsageError

ENGINES = ("llamacpp", "sglang", "trtllm", "vllm")

SGLANG = {
    "draft states": ["0.5.13"],
    "lazy extra buffer": ["0.5.13"],
    "unified memory": ["0.5.15"],
    "padding slot": ["0.5.17"],
    "decode lock": ["0.5.17"],
}
"""Releases as read from SGLang's packages, apart from kvplan's own table."""
VLLM = {
    ("gpu_memory_utilization", "0.19.1"): "0.11.0",
    ("gpu_memory_utilization", "0.20.2"): "0.20.2",
    ("group width", "0.17.1"): "0.12.0",
    ("group width", "0.33.0"): "0.18.1",
    ("GPU KV cache size", "0.19.1"): "0.11.0",
    ("state blocks per request", "0.28.0"): "0.15.1",
    ("state blocks per request", "0.29.0"): "0.29.0",
    ("retention of states", "0.29.0"): "0.11.0",
    ("retention of states", "0.30.0"): "0.30.0",
    ("null block", "0.28.0"): None,
}
"""The step in force at a release, as read from vLLM's packages."""


def test_the_matrix_has_every_cell_of_every_engine(kvplan_json: Any) -> None:
    document = kvplan_json("engines", "list")
    assert document["schema"] == "kvplan.engines/1"
    assert {"kvplan_version", "inputs", "assumptions"} <= document.keys()
    engines = {engine["name"]: engine for engine in document["engines"]}
    assert set(ENGINES) < set(engines)
    for name in ENGINES:
        assert tuple(engines[name]["parity"]) == FEATURES
        assert date.fromisoformat(engines[name]["checked"])


@pytest.mark.parametrize("name", ENGINES)
def test_a_known_cell_has_a_note_a_source_and_a_release_or_date(name: str) -> None:
    for feature, cell in engine_facts.engine_facts(name).parity.items():
        assert cell["support"] in ("yes", "no", "partial", "unknown"), feature
        assert str(cell["note"]).endswith(".")
        if cell["support"] != "unknown":
            assert str(cell["source"]).startswith("https://"), feature
            assert re.fullmatch(r"\d+\.\d+(\.\d+)?|20\d\d-\d\d-\d\d", str(cell["since"])), feature


@pytest.mark.parametrize("name", ENGINES)
def test_every_rule_has_a_source_and_its_release_where_it_is_known(name: str) -> None:
    facts = engine_facts.engine_facts(name)
    assert facts.rules
    assert facts.source["url"].startswith("https://")
    for rule in facts.rules:
        assert rule.source and rule.effect
        assert rule.since or name in ("llamacpp", "trtllm")


def test_releases_are_dated() -> None:
    assert engine_facts.engine_facts("vllm").released == "2026-11-02"
    assert engine_facts.engine_facts("vllm", "0.28").released == "2026-08-26"
    assert engine_facts.engine_facts("sglang").released == "2026-10-30"
    assert engine_facts.engine_facts("llamacpp").released == "2026-10-01"
    assert engine_facts.engine_facts("trtllm").released is None


@pytest.mark.parametrize(("rule", "since"), SGLANG.items())
def test_sglang_rules_come_in_with_the_release_that_its_packages_show(rule: str, since: list[str]) -> None:
    found = {row.name: row for row in engine_facts.engine_facts("sglang").rules}
    assert list(found[rule].since) == since


def test_sglang_extra_buffer_by_architecture() -> None:
    rule = next(row for row in engine_facts.engine_facts("sglang").rules if row.name == "extra_buffer by default")
    told = {"Qwen3NextForCausalLM": "0.5.14", "NemotronHForCausalLM": "0.5.14"}
    told |= {"KimiLinearForCausalLM": "0.5.16", "KimiK3ForConditionalGeneration": "0.5.17"}
    for architecture, release in told.items():
        assert release in f"{rule.since} {rule.effect}"
        before = f"0.5.{int(release.rpartition('.')[2]) - 1}"
        strategies = [sglang_rules.rules_for(version).auto_strategy(architecture) for version in (before, release)]
        assert strategies == ["no_buffer", "extra_buffer"], architecture


@pytest.mark.parametrize(("asked", "step"), VLLM.items())
def test_the_step_in_force_of_a_vllm_rule(asked: tuple[str, str], step: str | None) -> None:
    name, version = asked
    found = {row.name: row for row in engine_facts.engine_facts("vllm", version).rules}
    assert found[name].in_force == step


def test_vllm_rules_are_the_planners_own() -> None:
    assert [row.name for row in engine_facts.engine_facts("vllm").rules] == [
        row["name"] for row in vllm_rules.catalogue()
    ]
    facts = engine_facts.engine_facts("vllm", "0.19.1")
    assert facts.values["gpu_memory_utilization"] == 0.9
    assert facts.values["width_ratio"] == 1.5


def test_rules_older_than_half_a_year_are_said_to_be() -> None:
    facts = engine_facts.engine_facts("vllm", "0.11.0")
    assert facts.age_warning(date(2025, 12, 1)) is None
    assert "2025-10-04" in str(facts.age_warning(date(2026, 11, 29)))


@pytest.mark.parametrize(("engine", "newer", "known"), [("vllm", "9.9", "0.28"), ("sglang", "0.6.0", "0.5.20")])
def test_a_release_that_nobody_has_read_warns(engine: str, newer: str, known: str) -> None:
    assert f"{newer} is newer than any release read" in str(
        engine_facts.engine_facts(engine, newer).newer_warning(newer)
    )
    assert engine_facts.engine_facts(engine, known).newer_warning(known) is None


def test_the_screen_fits_eighty_columns_but_for_addresses(kvplan: Any) -> None:
    for args in (("list",), ("show", "sglang"), ("show", "vllm", "--engine-version", "0.28")):
        done = kvplan("engines", *args)
        assert done.returncode == 0, done.stderr
        assert all(len(line) <= 80 or "https://" in line or "[" in line for line in done.stdout.splitlines())


def test_show_without_a_name_shows_every_engine(kvplan: Any, kvplan_json: Any) -> None:
    text = kvplan("engines", "show").stdout
    assert all(title in text for title in ("vLLM, rules of", "SGLang, rules of", "TensorRT-LLM, rules of"))
    assert len(kvplan_json("engines", "show", "VLLM")["engines"]) == 1


@pytest.mark.parametrize(
    "args",
    [
        ("show", "nosuch"),
        ("show", "vllm", "--engine-version", "0.1"),
        ("show", "vllm", "--engine-version", "new"),
        ("show", "trtllm", "--engine-version", "1.2"),
        ("show", "--engine-version", "0.28"),
    ],
)
def test_what_cannot_be_shown_is_one_line(kvplan: Any, args: tuple[str, ...]) -> None:
    done = kvplan("engines", *args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("kvplan: ")


_CELL = 'support = "yes"\nsince = "1.0"\nnote = "A note."\nsource = "https://example.org/x"\n'


def _profile(**cells: str) -> str:
    head = 'schema = "kvplan.engine/1"\nname = "ideal"\ntitle = "Ideal"\nchecked = "2026-11-29"\n'
    head += '[source]\ntitle = "t"\nurl = "https://example.org"\ndate = "2026-11-29"\n'
    return head + "".join(f"[parity.{name}]\n{cells.get(name, _CELL)}" for name in FEATURES)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a profile of the user's own for the engine `ideal`."""
    monkeypatch.setenv("KVPLAN_HOME", str(tmp_path))
    (tmp_path / "engines").mkdir()

    def write(text: str) -> None:
        profiles.paths.cache_clear()
        profiles.load.cache_clear()
        (tmp_path / "engines" / "ideal.toml").write_text(text)

    yield write
    profiles.paths.cache_clear()
    profiles.load.cache_clear()


def test_a_users_own_profile_is_read(own: Any) -> None:
    own(_profile())
    assert engine_facts.engine_facts("ideal").parity["dcp"]["support"] == "yes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_profile(dcp='support = "maybe"\nnote = "A note."\n'), "parity.dcp.support"),
        (_profile(dcp='support = "yes"\nnote = "A note."\n'), "a known cell has a source"),
        (_profile(dcp='support = "yes"\nsince = "1.0"\nnote = "A note."\nsource = "http://x"\n'), "parity.dcp.source"),
        (_profile(dcp='support = "unknown"\nnote = "no stop"\n'), "parity.dcp.note"),
        (_profile() + "[parity.speed]\n" + _CELL, "parity.speed"),
        (_profile().replace("[parity.dcp]\n" + _CELL, ""), "parity lacks dcp"),
        (_profile() + "[more]\n", "more"),
        (_profile().replace('name = "ideal"', 'name = "vllm"'), "is not the file's own name"),
        (_profile() + '[[rules]]\nname = "r"\neffect = "e"\nsource = "s"\nattribute = "a"\n', "attribute"),
        (_profile() + '[release_dates]\n"1.0" = "soon"\n', "release_dates"),
        ("schema = 1\n", "schema"),
    ],
)
def test_a_malformed_profile_is_refused_with_its_field(own: Any, text: str, said: str) -> None:
    own(text)
    with pytest.raises(ProfileError, match=re.escape(said)):
        engine_facts.engine_facts("ideal")


def test_an_engine_without_versions_refuses_one() -> None:
    with pytest.raises(UsageError, match="one set of rules"):
        engine_facts.engine_facts("llamacpp", "1.0")
