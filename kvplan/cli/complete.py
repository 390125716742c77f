"""What the shell offers where a name of a model, GPU or engine is typed."""


def _beginning(names: list[str], typed: str) -> list[str]:
    return [name for name in names if name.startswith(typed.lower())]


def models(incomplete: str) -> list[str]:
    """Bundled models and the user's own; the shell itself offers paths."""
    from kvplan.profiles import paths

    return _beginning(sorted(paths("models")), incomplete)


def gpus(incomplete: str) -> list[str]:
    """GPU profiles, and `auto`."""
    from kvplan.profiles import paths

    return _beginning(["auto", *sorted(paths("gpus"))], incomplete)


def engines(incomplete: str) -> list[str]:
    """Engines whose rules are modelled."""
    from kvplan.registry import module_names

    return _beginning([name for name in module_names("kvplan.engines") if name != "base"], incomplete)


def claims(incomplete: str) -> list[str]:
    """Published claims, and the user's own."""
    from kvplan.profiles import paths

    return _beginning(sorted(paths("claims")), incomplete)


def workloads(incomplete: str) -> list[str]:
    """Bundled workloads and the user's own; the shell itself offers paths."""
    from kvplan.profiles import paths

    return _beginning(sorted(paths("workloads")), incomplete)


def schemas(incomplete: str) -> list[str]:
    """Documents that --json prints."""
    from kvplan.schemas import schema_rows

    return _beginning([row["name"].removeprefix("kvplan.") for row in schema_rows()], incomplete)
