"""One file per family: config.json → layers and weights. `read_config` is the only way in."""

from kvplan.architectures._read import known_model_types, read_config

__all__ = ["known_model_types", "read_config"]
