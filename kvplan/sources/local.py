"""A model that lies on this machine: a config.json, a folder that holds one, a GGUF file, or the Hugging Face cache."""

import os
import re
from pathlib import Path
from typing import Any

from kvplan.architectures import read_config
from kvplan.errors import SourceError
from kvplan.model import Model, Published, Source
from kvplan.sources.safetensors import INDEX, read_folder, total_size
from kvplan.sources.strict import MAX_INDEX_BYTES, read_json, reason, shown

CONFIG = "config.json"
QUANT_CONFIG = "hf_quant_config.json"
_COMMIT = re.compile(r"[0-9a-zA-Z._\-]{1,128}")


def from_path(argument: str) -> Model | None:
    """The model at a path, or None where the argument is not one. Raises SourceError for a path that holds none."""
    path = Path(os.path.expanduser(argument))
    explicit = argument.startswith(("/", "./", "../", "~", ".\\")) or argument in (".", "..")
    explicit = explicit or argument.lower().endswith((".json", ".gguf", ".safetensors"))
    try:
        is_folder = path.is_dir()
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if explicit:
            raise SourceError(f"{shown(path)}: no such file or directory") from None
        return None
    except (OSError, ValueError) as error:
        raise SourceError(f"{shown(path)}: {reason(error)}") from None
    if is_folder:
        return from_folder(path, required=explicit)
    return _from_file(path)


def _from_file(path: Path) -> Model:
    if path.suffix.lower() == ".gguf":
        # The reader brings the optional gguf package, which no other source needs.
        from kvplan.sources.gguf import read_gguf  # noqa: PLC0415

        return read_gguf(path)
    if path.suffix.lower() == ".safetensors":
        raise SourceError(f"{path}: give the directory, which also holds the config.json")
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return read_config(read_json(path), name=name or path.stem, source=Source(str(path)))


def from_folder(folder: Path, *, required: bool = True, name: str = "", note: str = "") -> Model | None:
    """A Hugging Face snapshot: config, quantisation sidecar, and the headers of its weights where they are here."""
    config = folder / CONFIG
    if not os.path.lexists(config):
        ggufs = sorted(path for path in folder.glob("*.gguf") if not path.name.startswith("mmproj"))
        if len(ggufs) > 1:
            raise SourceError(f"{folder}: holds {len(ggufs)} .gguf files; name one, for example {ggufs[0].name}")
        if ggufs:
            return _from_file(ggufs[0])
        if not required:
            return None
        own = f" (params.json is Mistral's own format; {CONFIG} is needed)" if (folder / "params.json").exists() else ""
        raise SourceError(f"{folder}: holds no {CONFIG}{own}")
    data = with_sidecar(read_json(config), folder / QUANT_CONFIG)
    tensors, lacking = read_folder(folder)
    published = None
    if not tensors and (folder / INDEX).exists():
        stated = total_size(read_json(folder / INDEX, MAX_INDEX_BYTES))
        published = Published(checkpoint_bytes=stated, source=f"{INDEX}: metadata.total_size") if stated else None
    source = Source(str(folder), note=note)
    return read_config(
        data, name=name or folder.resolve().name, source=source, published=published, snapshot=str(folder),
        tensors=tensors, tensors_missing=lacking,
    )  # fmt: skip


def with_sidecar(data: Any, sidecar: Path) -> Any:
    """The config with the quantisation that NVIDIA ModelOpt writes into a file of its own."""
    if not isinstance(data, dict) or data.get("quantization_config") or not sidecar.exists():
        return data
    return data | quantization_of(read_json(sidecar), str(sidecar))


def quantization_of(document: Any, what: str) -> dict[str, Any]:
    """`quantization_config` from an hf_quant_config.json."""
    quantization = document.get("quantization") if isinstance(document, dict) else None
    if not isinstance(quantization, dict):
        raise SourceError(f"{what}: `quantization` is not an object")
    return {"quantization_config": {"quant_method": "modelopt", **quantization}}


def cache_root() -> Path:
    """Where huggingface_hub keeps snapshots, by its own environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(os.path.expanduser(value))
    home = os.environ.get("HF_HOME")
    if home:
        return Path(os.path.expanduser(home)) / "hub"
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "huggingface" / "hub"


def from_cache(repo: str, revision: str | None) -> Model | None:
    """A model that the Hugging Face cache holds, or None."""
    folder = cache_root() / f"models--{repo.replace('/', '--')}"
    commit = _commit(folder, revision or "main")
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    if not os.path.lexists(snapshot / CONFIG):
        return None
    return from_folder(snapshot, name=repo, note=f"Hugging Face cache, revision {commit[:12]}")


def _commit(folder: Path, revision: str) -> str | None:
    """The snapshot that a branch, tag or commit stands for."""
    try:
        reference = folder / "refs" / revision
        if reference.is_file() and reference.stat().st_size <= 256:
            revision = reference.read_text(encoding="ascii").strip()
        if not _COMMIT.fullmatch(revision) or revision in (".", ".."):
            return None
        return revision if (folder / "snapshots" / revision).is_dir() else None
    except (OSError, ValueError):
        return None
