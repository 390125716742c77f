"""Claims as tables and documents."""

from typing import Any

from kvplan import __version__
from kvplan.claims.judge import BasisResult, Computed, Judged
from kvplan.claims.schema import Claim, Printed
from kvplan.tables import Table, print_json, print_text

SCHEMA = "kvplan.claims/1"


def show_list(claims: dict[str, Claim], as_json: bool) -> None:
    """Names, printed figures and what was said; nothing is computed."""
    if as_json:
        rows = [{"name": name, **claim.model_dump(by_alias=True, exclude_none=True)} for name, claim in claims.items()]
        print_json(_head({}) | {"claims": rows})
        return
    cells = [(name, claim.claim) for name, claim in claims.items()]
    print_text([f"{len(claims)} published claims; `kvplan claims check` judges them"], [Table("", _COLUMNS, cells)])


_COLUMNS = ("name", "claim")


def show_claim(judged: Judged, as_json: bool) -> None:
    """One claim with every basis and every figure."""
    if as_json:
        print_json(_head({"name": judged.name}) | {"claims": [judged.to_dict()]})
        return
    source = judged.claim.source
    where = ", ".join(part for part in (source.title, source.by, source.date, source.url) if part)
    lines = [judged.claim.claim, f"{judged.verdict.upper()}: {judged.detail}", f"{'SOURCE':<11}{where}"]
    lines += [f"{'NOTE':<11}{text}" for text in (source.note, judged.claim.remark) if text]
    print_text(lines, [_basis_table(result) for result in judged.bases])


def show_check(judged: list[Judged], as_json: bool, names: list[str]) -> None:
    """The verdict on each claim, and whether it is the one that its file expects."""
    wrong = [one for one in judged if not one.as_expected]
    counts: dict[str, int] = {}
    for one in judged:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    if as_json:
        found = {"holds": not wrong, "verdicts": counts, "claims": [one.to_dict() for one in judged]}
        print_json(_head({"names": names}) | found)
        return
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    first = "AS EXPECTED" if not wrong else f"NOT AS EXPECTED: {', '.join(one.name for one in wrong)}"
    rows = [(one.name, _printed(one.claim), _verdict(one)) for one in judged]
    print_text([f"{first}.", f"{len(judged)} claims: {said}."], [Table("", ("claim", "as printed", "verdict"), rows)])


def _head(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "kvplan_version": __version__, "inputs": inputs, "assumptions": []}


def _verdict(judged: Judged) -> str:
    plain = judged.verdict in ("reproduced exactly", "reproduced in range")
    said = judged.verdict if plain else f"{judged.verdict}: {judged.detail}"
    if judged.as_expected:
        return said
    expected = judged.claim.expected
    basis = f": {expected.basis}" if expected.basis else ""
    return f"{said}. EXPECTED {expected.verdict}{basis}"


def _printed(claim: Claim) -> str:
    return ", ".join(_one(printed) for printed in claim.printed)


def _one(printed: Printed) -> str:
    relation = "" if printed.relation == "equal" else f"{printed.relation} "
    return f"{relation}{printed.value} {printed.unit}".strip()


def _basis_table(result: BasisResult) -> Table:
    compared = {one.name: one for one in result.comparisons}
    rows = []
    for name, figure in result.figures.items():
        beside = compared.get(name)
        printed = f"{beside.printed} {beside.unit}".strip() if beside else ""
        holds = "" if beside is None else ("yes" if beside.agrees else "no") if beside.computed else "to be measured"
        rows.append((name, printed, _value(figure), holds))
    return Table(f"BASIS: {result.name}", ("figure", "printed", "computed", "holds"), rows)


def _value(figure: Computed) -> str:
    if figure.value is None:
        return "?"
    if figure.ends is not None:
        low, high = (float(end) for end in figure.ends)
        return f"{float(figure.value):,.2f} x ({low:,.2f}-{high:,.2f})"
    if figure.sort == "share":
        share = float(figure.value)
        return f"{share:,.2f} x" if share >= 2 else f"{100 * share:.2f} %"
    if figure.value.denominator != 1:
        return f"{float(figure.value):,.2f}{' B' if figure.sort == 'bytes' else ''}"
    whole = int(figure.value)
    if figure.sort == "bytes":
        return f"{whole:,} B"
    return f"{whole:,}"
