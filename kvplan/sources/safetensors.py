"""safetensors headers: every tensor's dtype, shape and bytes, without reading a single weight.

Format: 8 bytes of length (little-endian), that many bytes of JSON, then the data. Each entry holds `dtype`, `shape`
and `data_offsets`, two positions counted from the start of the data (github.com/huggingface/safetensors, format).
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import SourceError
from kvplan.model import Tensor
from kvplan.sources.strict import MAX_INDEX_BYTES, open_regular, parse_json, read_json

MAX_HEADER_BYTES = 100_000_000
MAX_DISTINCT = 200_000
"""Tensors after equal ones of a layer's experts are merged; the largest models have some thousands."""
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
_NUMBERED = re.compile(r"(.*-)(\d{5})-of-(\d{5})\.safetensors")
_EXPERT_NUMBER = re.compile(r"\.experts\.\d+\.")


def header_length(first: bytes, what: str, file_bytes: int | None) -> int:
    """Bytes of JSON that the first eight bytes announce. `file_bytes` None = the file's size is not known."""
    if first.startswith(b"version "):
        raise SourceError(f"{what}: a Git LFS pointer and not the weights; run `git lfs pull`")
    if len(first) < 8:
        raise SourceError(f"{what}: too short to be a safetensors file")
    length = int.from_bytes(first[:8], "little")
    if length > MAX_HEADER_BYTES or (file_bytes is not None and length > file_bytes - 8) or length < 2:
        raise SourceError(f"{what}: its header claims {length:,} bytes, so this is not a safetensors file")
    return length


class Entry(NamedTuple):
    """One tensor of a header. Offsets are counted from the start of the data; tuples, as there may be 500,000."""

    start: int
    end: int
    name: str
    dtype: str
    shape: tuple[int, ...]


def parse_header(raw: bytes, what: str, data_bytes: int | None) -> list[Entry]:
    """The tensors of one header in file order; `data_bytes` is what follows it, where that is known."""
    header = parse_json(raw, f"{what}: header", MAX_HEADER_BYTES)
    if not isinstance(header, dict):
        raise SourceError(f"{what}: its header is not a JSON object")
    header.pop("__metadata__", None)
    entries = []
    for name, entry in header.items():
        try:
            entries.append(_entry(name, entry))
        except ValueError as problem:
            raise SourceError(f"{what}: tensor {name[:80]!r}{problem}") from None
    entries.sort()
    for before, after in pairwise(entries):
        if after.start < before.end:
            raise SourceError(f"{what}: tensor {after.name[:80]!r} overlaps the one before it")
    if entries and data_bytes is not None and entries[-1].end > data_bytes:
        raise SourceError(f"{what}: tensor {entries[-1].name[:80]!r} ends beyond the file; it is cut short")
    return entries


def _entry(name: str, entry: Any) -> Entry:
    """A checked entry; raises ValueError with what follows the tensor's name in a sentence."""
    if not isinstance(entry, dict):
        raise ValueError(" is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f": dtype {str(dtype)[:20]!r} is not one of safetensors")
    if not isinstance(shape, list) or len(shape) > 16 or not all(map(_is_count, shape)):
        raise ValueError(f": shape {str(shape)[:60]} is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise ValueError(f": data_offsets {str(offsets)[:60]} are not a start and an end")
    start, end = offsets
    if end < start:
        raise ValueError(f": data_offsets {offsets} are not a start and an end")
    if (end - start) * 8 != prod(shape) * BITS[dtype]:
        raise ValueError(f": {end - start:,} bytes do not hold {dtype} of shape {str(shape)[:60]}")
    return Entry(start, end, name, dtype, tuple(shape))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def read_file(path: Path) -> list[Entry]:
    """The tensors of one local file."""
    with open_regular(path) as file:
        file_bytes = path.stat().st_size
        length = header_length(file.read(8), str(path), file_bytes)
        return parse_header(file.read(length), str(path), file_bytes - 8 - length)


def merge(entries: Iterable[Entry]) -> tuple[Tensor, ...]:
    """Equal tensors of a layer's experts as one entry with a count, in the order of their first."""
    counts = Counter(
        (_EXPERT_NUMBER.sub(".experts.*.", name), dtype, shape, end - start)
        for start, end, name, dtype, shape in entries
    )
    if len(counts) > MAX_DISTINCT:
        raise SourceError(f"the weight files name {len(counts):,} different tensors; no model has as many")
    return tuple(Tensor(*one, count) for one, count in counts.items())


def read_folder(folder: Path) -> tuple[tuple[Tensor, ...], str]:
    """Every tensor of a local snapshot; without a complete set, none and a sentence that says what is missing.

    Raises SourceError for a file that is damaged or an index that points outside the folder.
    """
    if (folder / INDEX).exists():
        shards = shards_of(read_json(folder / INDEX, MAX_INDEX_BYTES), str(folder / INDEX))
    elif (folder / SINGLE).exists():
        shards = [SINGLE]
    else:
        found = sorted(path.name for path in folder.glob("*.safetensors"))
        shards = _promised([name for name in found if not name.startswith(("consolidated", "adapter"))] or found)
    if not shards:
        return (), ""
    absent = [shard for shard in shards if not _holds_weights(folder / shard)]
    if absent:
        return (), f"{absent[0]} and {len(absent) - 1} more of {len(shards)} weight files are not here"
    return merge(_once(entry for shard in shards for entry in read_file(folder / shard))), ""


def _promised(shards: list[str]) -> list[str]:
    """Files by name, with those that the numbers in one name (`…-00001-of-00004.safetensors`) promise beside it."""
    match = next(filter(None, map(_NUMBERED.fullmatch, shards)), None)
    if match is None:
        return shards
    named = [f"{match[1]}{number:05}-of-{match[3]}.safetensors" for number in range(1, int(match[3]) + 1)]
    return list(dict.fromkeys([*shards, *named]))


def _once(entries: Iterable[Entry]) -> Iterable[Entry]:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise SourceError(f"tensor {entry.name[:80]!r} stands in two weight files of the same model")
        seen.add(entry.name)
        yield entry


def _holds_weights(path: Path) -> bool:
    """False for a file that is absent and for the pointer that Git LFS leaves in its place."""
    if not path.exists():
        return False
    with open_regular(path) as file:
        return not file.read(8).startswith(b"version ")


def shards_of(index: Any, what: str) -> list[str]:
    """The weight files that an index names, each a plain name inside its own folder."""
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise SourceError(f"{what}: weight_map is not an object of file names")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if not re.fullmatch(r"[\w.\-]+(?:/[\w.\-]+)*\.safetensors", shard, re.ASCII) or ".." in shard.split("/"):
            raise SourceError(f"{what}: weight_map names {shard[:80]!r}, which is not a safetensors file beside it")
    return shards


def total_size(index: Any) -> int | None:
    """The bytes of all tensors as an index states them."""
    metadata = index.get("metadata") if isinstance(index, dict) else None
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if type(size) is int and 0 < size < 1 << 60 else None
