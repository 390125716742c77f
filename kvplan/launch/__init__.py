"""An engine's own command line, or its YAML options, as a deployment."""

from kvplan.launch.command import parse_command
from kvplan.launch.merge import with_own_flags
from kvplan.launch.reading import Launch, read_values

__all__ = ["Launch", "parse_command", "read_values", "with_own_flags"]
