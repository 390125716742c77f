"""JSON Schemas from what the documents are made of: dataclasses, pydantic models, and the few keys around them.

A shape is an annotation that pydantic understands, a dict of shapes (an object with exactly these keys), a list of one
shape, or one of the marks below.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Shape = Any
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Maybe:
    """The shape, or null."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Part:
    """A key that may be absent."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Map:
    """An object with any keys, each value of this shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Open:
    """An object with at least these keys."""

    shape: dict[str, Shape]


@dataclass(frozen=True, slots=True)
class Endless:
    """The shape, where a number may be infinite: JSON has no word for that, and null stands for it."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of these shapes."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with the fields of a class, some left out, some added."""

    cls: type
    without: tuple[str, ...] = ()
    more: tuple[tuple[str, Shape], ...] = ()
    sparse: bool = False
    """True where fields at their default are not written."""


def build(name: str, description: str, shape: Shape) -> Json:
    """The schema of one document. No object takes keys that its shape does not have."""
    defs: Json = {}
    body = _schema(shape, defs)
    head = {"$schema": DIALECT, "title": name, "description": description}
    return head | body | ({"$defs": dict(sorted(defs.items()))} if defs else {})


def _schema(shape: Shape, defs: Json) -> Json:
    if isinstance(shape, dict):
        return _object({key: _schema(_inner(one), defs) for key, one in shape.items()}, _needed(shape))
    if isinstance(shape, Open):
        return _schema(shape.shape, defs) | {"additionalProperties": True}
    if isinstance(shape, list):
        return {"type": "array", "items": _schema(shape[0], defs)}
    if isinstance(shape, Maybe):
        return {"anyOf": [_schema(shape.shape, defs), {"type": "null"}]}
    if isinstance(shape, Endless):
        own: Json = {}
        body = _without_end(_inlined(_schema(shape.shape, own), own))
        return dict(body)
    if isinstance(shape, OneOf):
        return {"anyOf": [_schema(one, defs) for one in shape.shapes]}
    if isinstance(shape, Map):
        return {"type": "object", "additionalProperties": _schema(shape.shape, defs)}
    if isinstance(shape, Fields):
        return _fields(shape, defs)
    return _known(shape, defs)


def _inner(shape: Shape) -> Shape:
    return shape.shape if isinstance(shape, Part) else shape


def _needed(shape: dict[str, Shape]) -> list[str]:
    return [key for key, one in shape.items() if not isinstance(one, Part)]


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _fields(shape: Fields, defs: Json) -> Json:
    own = _known(shape.cls, defs, sparse=shape.sparse)
    own = defs[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
    more = dict(shape.more)
    properties = {key: one for key, one in own["properties"].items() if key not in shape.without}
    properties |= {key: _schema(_inner(one), defs) for key, one in more.items()}
    required = [key for key in own["required"] if key in properties and key not in more] + _needed(more)
    return _object(properties, required)


def _known(annotation: Shape, defs: Json, *, sparse: bool = False) -> Json:
    """What pydantic says of an annotation, made strict; its definitions join the document's."""
    found = TypeAdapter(annotation).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    for name, one in found.pop("$defs", {}).items():
        if defs.setdefault(name, strict := _strict(one, sparse)) != strict:
            raise ValueError(f"two classes called {name} in one document")
    known: Json = _strict(found, sparse)
    return known


def _strict(schema: Any, sparse: bool) -> Any:
    """Every object closed, every field of it required, and the names that Python ends with an underscore without it."""
    if isinstance(schema, list):
        return [_strict(one, sparse) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" not in schema:
        return {key: one if key in ("const", "enum") else _strict(one, sparse) for key, one in schema.items()
                if key not in ("title", "default")}  # fmt: skip
    properties = {key.rstrip("_"): _strict(one, sparse) for key, one in schema["properties"].items()}
    required = [key.rstrip("_") for key in schema.get("required", [])] if sparse else list(properties)
    said = {"description": schema["description"]} if "description" in schema else {}
    return said | _object(properties, required)


def _inlined(schema: Any, defs: Json) -> Any:
    """The same with every reference replaced by what it stands for."""
    if isinstance(schema, list):
        return [_inlined(one, defs) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(defs[schema["$ref"].rpartition("/")[2]], defs)
    return {key: _inlined(one, defs) for key, one in schema.items()}


def _without_end(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_end(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return {"anyOf": [schema, {"type": "null"}]}
    return {key: _without_end(one) for key, one in schema.items()}
