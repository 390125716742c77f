"""A group whose help shows the whole first sentence of each command, where typer cuts it to a line."""

from typing import Any

from typer.core import TyperGroup

SENTENCE = 200
"""Characters of it, at most."""


class Sentences(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=SENTENCE)) for name, one in found if one and not one.hidden]
            )
