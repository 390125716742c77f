"""What can go wrong, and the exit code that says it.

KvplanError            exit 2: could not run
├── UsageError         a flag or argument cannot be meant
├── ConfigError        a config.json says something that kvplan does not model, or is not one
│   └── MissingField   a field that a rule needs is absent
├── ProfileError       a TOML profile is missing or malformed
├── PlacementError     the layout is illegal for this model
├── SourceError        a file, cache or hub does not give what was asked
└── DeviceError        exit 3: no usable GPU here
"""

YES = 0
NO = 1
COULD_NOT_RUN = 2
NO_DEVICE = 3
TOO_CLOSE = 4


class KvplanError(Exception):
    """One line that names the offending field and what to do about it."""

    exit_code = COULD_NOT_RUN


class UsageError(KvplanError):
    """A flag or argument that cannot be meant."""


class ConfigError(KvplanError):
    """A model config that is malformed, or that stores something kvplan does not model."""


class MissingField(ConfigError):
    """A field that a rule needs is absent from the config."""


class ProfileError(KvplanError):
    """A profile that does not exist or does not hold what its schema asks."""


class PlacementError(KvplanError):
    """A parallel layout that this model cannot be split into."""


class SourceError(KvplanError):
    """A path, cache or hub that does not give the model."""


class DeviceError(KvplanError):
    """No usable GPU on this machine."""

    exit_code = NO_DEVICE
