"""A claim as a file: profiles/claims/NAME.toml, schema kvplan.claim/1."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kvplan.errors import ProfileError
from kvplan.profiles import load, paths

KIND = "claims"

Outcome = Literal[
    "reproduced exactly",
    "reproduced in range",
    "reproduced on another basis",
    "not reproduced",
    "needs measurement",
    "out of scope",
]
"""`in range`: the printed figure lies in the interval that measured times give, on the plain reading."""
Sort = Literal["bytes", "tokens", "share", "count"]
"""What a figure is; a ratio of two figures is a share."""

UNITS: dict[str, tuple[Sort, str]] = {
    "B": ("bytes", "1"), "kB": ("bytes", "1e3"), "KB": ("bytes", "1e3"), "MB": ("bytes", "1e6"),
    "GB": ("bytes", "1e9"), "TB": ("bytes", "1e12"),
    "KiB": ("bytes", "1024"), "MiB": ("bytes", "1048576"), "GiB": ("bytes", "1073741824"),
    "%": ("share", "0.01"), "x": ("share", "1"),
    "tokens": ("tokens", "1"), "M tokens": ("tokens", "1e6"),
    "": ("count", "1"),
}  # fmt: skip
"""Printed units: what they measure, and the factor. A printed KB is 1,000 B unless a basis reads it as KiB."""

Word = Annotated[str, Field(min_length=1, max_length=60)]
Words = Annotated[str, Field(min_length=1, max_length=400)]
Number = Annotated[str, Field(pattern=r"^\d{1,3}(,\d{3})+$|^\d+(\.\d+)?$", max_length=20)]
Fractional = Annotated[str, Field(pattern=r"^[1-9]\d{0,12}(/[1-9]\d{0,12})?$")]
Unit = Annotated[str, Field(pattern=f"^({'|'.join(UNITS)})$")]
Flags = dict[str, str | int | float | bool]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Published(_Strict):
    """Where the claim was made. `url` stays out where no public address is recorded."""

    title: Words
    by: Word
    url: Annotated[str, Field(pattern=r"^https://[^\s]+$", max_length=200)] | None = None
    date: Annotated[str, Field(pattern=r"^20\d\d(-[01]\d(-[0-3]\d)?)?$")] | None = None
    note: str = ""


class Printed(_Strict):
    """One number of the claim, spelled as printed: its digits are its precision."""

    name: Word
    value: Number
    unit: Unit
    relation: Literal["equal", "at least", "at most"] = "equal"


class Figure(_Strict):
    """One number to compute: a named quantity of a model under flags, perhaps over another one."""

    quantity: Word | None = None
    model: Word | None = None
    flags: Flags = {}
    arguments: Flags = {}
    """What the quantity asks for beyond a plan's flags."""
    times: Fractional = "1"
    complement: bool = False
    """One minus the figure: what a share leaves."""
    over: Annotated["Figure | None", BeforeValidator(lambda value: _as_figure(value))] = None
    unit: Unit | None = None
    """How the printed unit is read on this basis, where that differs."""

    @model_validator(mode="after")
    def _one_bar(self) -> "Figure":
        if self.over is not None and self.over.over is not None:
            raise ValueError("over: a figure is over one other, which is over none")
        return self

    def under(self, above: "Figure") -> "Figure":
        """This figure, what it leaves open taken from `above`."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        above_own = {name: getattr(above, name) for name in above.model_fields_set}
        joined: dict[str, Any] = above_own | own
        joined |= {"flags": above.flags | self.flags, "arguments": above.arguments | self.arguments}
        if self.over is not None and above.over is not None:
            joined["over"] = self.over.under(above.over)
        return Figure.model_construct(set(joined), **joined)


def _as_figure(value: Any) -> Any:
    return {"quantity": value} if isinstance(value, str) else value


AnyFigure = Annotated[Figure, BeforeValidator(_as_figure)]


class Basis(_Strict):
    """A set of assumptions. The first one of a claim is the plain reading, with what engines store by default."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    model: Word | None = None
    flags: Flags = {}
    figures: dict[Word, AnyFigure] = {}


class Expected(_Strict):
    """The verdict that the check has to arrive at, and the basis where that is another one."""

    verdict: Outcome
    basis: str | None = None

    @model_validator(mode="after")
    def _named(self) -> "Expected":
        if (self.basis is not None) != (self.verdict == "reproduced on another basis"):
            raise ValueError("basis goes with `reproduced on another basis` and with nothing else")
        return self


class Claim(_Strict):
    """One published claim. `figures` hold for every basis; a basis adds its model, flags and own figures."""

    schema_: Literal["kvplan.claim/1"] = Field(alias="schema")
    claim: Words
    expected: Expected
    source: Published
    remark: str = ""
    out_of_scope: str | None = None
    """Why kvplan has nothing to say about it."""
    printed: Annotated[tuple[Printed, ...], Field(strict=False)] = ()
    figures: dict[Word, AnyFigure] = {}
    basis: Annotated[tuple[Basis, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _whole(self) -> "Claim":
        if (self.out_of_scope is None) != (self.expected.verdict != "out of scope"):
            raise ValueError("out_of_scope gives the reason of the verdict `out of scope`, and of no other")
        if self.out_of_scope is None and not (self.printed and self.basis):
            raise ValueError("a claim in scope has at least one [[printed]] and one [[basis]]")
        names = [basis.name for basis in self.basis]
        if len(set(names)) < len(names):
            raise ValueError("two bases have the same name")
        if self.expected.basis is not None and self.expected.basis not in names[1:]:
            raise ValueError(f"expected.basis {self.expected.basis!r} is not one of the further bases")
        for basis in self.basis:
            for name, figure in self.all_figures(basis).items():
                if figure.quantity is None or figure.model is None:
                    raise ValueError(f"basis {basis.name!r}: figure {name} lacks a quantity or a model")
            if missing := [one.name for one in self.printed if one.name not in self.all_figures(basis)]:
                raise ValueError(f"basis {basis.name!r} has no figure for {', '.join(missing)}")
        return self

    def all_figures(self, basis: Basis) -> dict[str, Figure]:
        """Every figure of a basis, whole."""
        given: dict[str, Any] = {"flags": basis.flags}
        if basis.model is not None:
            given["model"] = basis.model
        ground = Figure.model_construct(set(given), **given)
        names = dict.fromkeys([*self.figures, *basis.figures])
        nothing = Figure.model_construct(set())
        return {
            name: basis.figures.get(name, nothing).under(self.figures.get(name, nothing)).under(ground)
            for name in names
        }  # fmt: skip


def parse_claim(path: Path) -> Claim:
    """A file as a claim. Raises ProfileError naming the field that is wrong."""
    try:
        return Claim.model_validate(load(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"][:6]) or "the claim"
        raise ProfileError(f"{path}: {field}: {first['msg'].removeprefix('Value error, ')}") from None


def find_claim(name: str) -> Claim:
    """The claim of that name, whatever the case. Raises ProfileError with the nearest names."""
    known = paths(KIND)
    path = known.get(name.lower())
    if path is None:
        near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`kvplan claims list` shows them"
        raise ProfileError(f"no claim named {name[:40]!r}; {hint}")
    return parse_claim(path)


def list_claims() -> dict[str, Claim]:
    """Every claim, by name."""
    return {name: parse_claim(path) for name, path in sorted(paths(KIND).items())}
