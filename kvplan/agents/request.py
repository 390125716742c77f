"""One request of a trace, in the words that every reader translates into."""

from dataclasses import dataclass
from typing import Literal

Trigger = Literal["user", "tool", "mixed"]
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Request:
    """What one call to the model sent and got. None means that the trace does not say.

    `input_tokens` is the whole prompt, what earlier turns left included.
    """

    session: str
    input_tokens: int
    output_tokens: int
    agent: str = MAIN
    at_s: float | None = None
    """Seconds on the session's or the trace's clock."""
    service_s: float | None = None
    """From sending to the end of the answer."""
    pause_s: float | None = None
    """Before this request, since the answer before it: a tool ran or a person thought."""
    shared_tokens: int | None = None
    """Longest common prefix with the agent's previous prompt."""
    preamble_tokens: int | None = None
    """Tool definitions and system prompt, which a session's agents begin with."""
    trigger: Trigger | None = None
    blocks: tuple[int, ...] = ()
    """Content of the prompt by block, equal numbers for equal prefixes."""

    @property
    def context_tokens(self) -> int:
        """What is stored once the answer is there."""
        return self.input_tokens + self.output_tokens

    @property
    def stream(self) -> tuple[str, str]:
        """The conversation that this request continues."""
        return self.session, self.agent
