"""GGUF files: the header's metadata and tensor list, through the optional gguf package."""

from pathlib import Path
from struct import error as StructError
from typing import Any

from kvplan.architectures import read_config
from kvplan.errors import SourceError
from kvplan.model import Model, Source, Tensor
from kvplan.sources.gguf_config import config_of
from kvplan.sources.strict import open_regular

try:
    from gguf import GGUFReader, GGUFValueType, ReaderField
except ImportError:
    raise SourceError("reading a .gguf file needs the gguf package: pip install 'kvplan-hybrid[gguf]'") from None

_BAD = (ValueError, IndexError, KeyError, OverflowError, TypeError, StructError, MemoryError, OSError, RecursionError)
_MAX_LIST = 4096


def read_gguf(path: Path) -> Model:
    """A model from a GGUF header. Raises SourceError for a damaged or split file, ConfigError for an unknown one."""
    with open_regular(path) as file:
        if file.read(4) != b"GGUF":
            raise SourceError(f"{path}: not a GGUF file")
    try:
        reader = GGUFReader(path)
        fields = {name: _value(field) for name, field in reader.fields.items()}
        tensors = [
            Tensor(tensor.name, tensor.tensor_type.name, tuple(int(size) for size in reversed(tensor.shape)),
                   int(tensor.n_bytes))
            for tensor in reader.tensors
        ]  # fmt: skip
    except _BAD as error:
        raise SourceError(f"{path}: its GGUF header is damaged ({str(error)[:80] or type(error).__name__})") from None
    parts = fields.get("split.count")
    if isinstance(parts, int) and parts > 1:
        raise SourceError(f"{path}: one of {parts} parts of a split model; merge them with llama-gguf-split first")
    arch = fields.get("general.architecture")
    if not isinstance(arch, str):
        raise SourceError(f"{path}: general.architecture is missing from its header")
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    table = shapes.get("token_embd.weight")
    config = config_of(arch, fields, vocab_size=table[0] if table else None, tied="output.weight" not in shapes)
    name = fields.get("general.name")
    return read_config(
        config, name=name if isinstance(name, str) and name.isprintable() else path.stem, source=Source(str(path)),
        tensors=tuple(tensors),
    )  # fmt: skip


def _value(field: ReaderField) -> Any:
    """A number, string or short list; None for the long lists of a tokenizer."""
    if field.types[:1] == [GGUFValueType.ARRAY] and len(field.data) > _MAX_LIST:
        return None
    value = field.contents()
    return value.item() if hasattr(value, "item") else value
