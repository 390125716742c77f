"""`kvplan schema`: the JSON Schemas of what --json prints."""

from typing import Annotated

import typer

from kvplan.cli import complete


def command(
    name: Annotated[
        str | None,
        typer.Argument(autocompletion=complete.schemas, help="A document, as its key `schema` has it: plan/1."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The list as one JSON document.")] = False,
) -> None:
    """The JSON Schema of a document that --json prints; without a name, every document and what prints it."""
    from kvplan.schemas import find_schema, schema_rows
    from kvplan.tables import print_json, print_rows

    if name is None:
        print_rows("kvplan.schemas/1", "schemas", schema_rows(), json)
    else:
        print_json(find_schema(name))
