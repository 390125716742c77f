"""A workflow as its author writes it, a tree of agents and the prefixes that they begin with: kvplan.workflow/1."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvplan.errors import ProfileError

MOST_AGENTS = 500

Name = Annotated[str, Field(min_length=1, max_length=60)]
Tokens = Annotated[int, Field(ge=0, le=1 << 40)]
Seconds = Annotated[float, Field(ge=0, le=1e9, strict=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Prefix(_Part):
    """Tokens that fresh agents begin with: tool definitions, a system prompt, a repository."""

    name: Name
    tokens: Annotated[int, Field(ge=1, le=1 << 40)]


class Agent(_Part):
    """One agent, or `count` alike."""

    name: Name
    parent: Name | None = None
    """Whose start `start_s` counts from; without, the workflow's."""
    start_s: Seconds = 0.0
    duration_s: Annotated[float, Field(gt=0, le=1e9, strict=False)]
    mode: Literal["sync", "async"] = "async"
    context: Literal["fresh", "fork"] = "fresh"
    prefix: Name | None = None
    start_tokens: Tokens = 0
    """Own tokens at the start, beyond prefix or fork."""
    end_tokens: Tokens
    """Own tokens at the end, beyond prefix or fork."""
    persists_s: Seconds = 0.0
    """How long its memory stays after it has ended."""
    snapshots: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Saved states kept while it stands."""
    count: Annotated[int, Field(ge=1, le=MOST_AGENTS)] = 1
    stagger_s: Seconds = 0.0
    """From the start of one of `count` to the next."""

    @model_validator(mode="after")
    def _sound(self) -> "Agent":
        if self.end_tokens < self.start_tokens:
            raise ValueError(f"agent {self.name}: end_tokens is below start_tokens")
        if self.context == "fork" and (self.parent is None or self.prefix is not None):
            raise ValueError(f"agent {self.name}: a fork has a parent, and its parent's prefix")
        if self.mode == "sync" and self.parent is None:
            raise ValueError(f"agent {self.name}: sync needs a parent that waits")
        return self


class Workflow(_Part):
    """Agents in any order."""

    schema_: Literal["kvplan.workflow/1"] = Field(alias="schema")
    name: Name = "workflow"
    prefixes: Annotated[tuple[Prefix, ...], Field(strict=False)] = ()
    agents: Annotated[tuple[Agent, ...], Field(min_length=1, max_length=1000, strict=False)]

    @model_validator(mode="after")
    def _connected(self) -> "Workflow":
        names = [agent.name for agent in self.agents]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"agent {twice} is there twice")
        prefixes = {prefix.name for prefix in self.prefixes}
        if len(prefixes) < len(self.prefixes):
            raise ValueError("a prefix is there twice")
        parents = {agent.name: agent.parent for agent in self.agents}
        for agent in self.agents:
            if agent.prefix is not None and agent.prefix not in prefixes:
                raise ValueError(f"agent {agent.name}: no prefix named {agent.prefix}")
            if agent.parent is not None and agent.parent not in parents:
                raise ValueError(f"agent {agent.name}: no agent named {agent.parent}")
            above, steps = agent.parent, 0
            while above is not None:
                above, steps = parents[above], steps + 1
                if steps > len(names):
                    raise ValueError(f"agent {agent.name} is its own ancestor")
        return self


def parse_workflow(document: dict[str, Any], where: str) -> Workflow:
    """The workflow in a TOML document. Raises ProfileError naming the field."""
    try:
        return Workflow.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_name = ".".join(str(part) for part in first["loc"]) or "the workflow"
        raise ProfileError(f"{where}: {field_name}: {first['msg'].removeprefix('Value error, ')}") from None
