"""Pages of different size side by side in one block (v1/core/kv_cache_planning.py, kv_cache_utils.py before 0.30)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.engines.vllm.specs import GROWING, WINDOWED, Group, Spec, make_group, same_type
from kvplan.errors import ConfigError
from kvplan.units import ceil_div


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers that always need the same number of blocks, by the size of their page."""

    layers: list[int]
    first: Spec
    sizes: dict[int, list[int]]

    @property
    def even(self) -> bool:
        """As many layers of one page size as of any other."""
        return len({len(layers) for layers in self.sizes.values()}) == 1

    @property
    def depth(self) -> int:
        """Most layers of one page size."""
        return max(len(layers) for layers in self.sizes.values())

    def widest(self, count: int) -> int:
        """Bytes of the largest of the `count` groups that this bucket is split into."""
        return sum(ceil_div(len(layers), count) * page for page, layers in self.sizes.items())


def _bucket(layers: list[int], specs: Sequence[Spec]) -> _Bucket:
    sizes: dict[int, list[int]] = {}
    for layer in layers:
        sizes.setdefault(specs[layer].page_bytes, []).append(layer)
    return _Bucket(layers, specs[layers[0]], sizes)


def packed_groups(specs: Sequence[Spec]) -> list[Group]:
    """Groups of a block-outermost layout, from 0.29.0 (_get_packed_kv_cache_groups).

    Buckets that mix page sizes evenly repeat a pattern and are split to the same number of repeats; states, and
    windows where nothing repeats, are split to what the other blocks hold anyway.
    """
    buckets = [_bucket(layers, specs) for layers in _alike(specs)]
    floor = max((bucket.depth for bucket in buckets if bucket.even and len(bucket.sizes) > 1), default=0)
    repeats = _least_padding([bucket.depth for bucket in buckets if bucket.even], floor) if floor else None

    def count(bucket: _Bucket) -> int:
        return ceil_div(bucket.depth, repeats) if bucket.even and repeats is not None else 1

    def divisible(bucket: _Bucket) -> bool:
        return bucket.first.kind == "state" or (repeats is None and bucket.first.kind in WINDOWED)

    anchor = max(bucket.widest(len(bucket.layers) if divisible(bucket) else count(bucket)) for bucket in buckets)
    groups = []
    for bucket in buckets:
        parts = count(bucket)
        if divisible(bucket):
            parts = max(parts, ceil_div(len(bucket.layers), max(anchor // bucket.first.page_bytes, 1)))
        groups += _split(bucket, parts, specs)
    return groups


def _alike(specs: Sequence[Spec]) -> list[list[int]]:
    """Layers of one type together, each joining the first list that it fits."""
    lists: list[list[int]] = []
    for position, spec in enumerate(specs):
        home = next((found for found in lists if _fits(spec, found, specs)), None)
        if home is None:
            lists.append([position])
        else:
            home.append(position)
    return lists


def _fits(spec: Spec, bucket: Sequence[int], specs: Sequence[Spec]) -> bool:
    first = specs[bucket[0]]
    return same_type(first, spec) and all(same_type(first, specs[position]) for position in bucket)


def _split(bucket: _Bucket, count: int, specs: Sequence[Spec]) -> list[Group]:
    """A bucket dealt out to `count` groups, one layer of each page size at a time."""
    if count == 1:
        return [make_group(bucket.layers, specs, len(bucket.layers))]
    repeats = list(zip(*bucket.sizes.values(), strict=False))
    slots = ceil_div(len(repeats), count) * len(bucket.sizes)
    dealt = ([layer for repeat in repeats[turn::count] for layer in repeat] for turn in range(count))
    return [make_group(layers, specs, slots) for layers in dealt]


def _least_padding(values: Sequence[int], lower: int) -> int:
    """The size from `lower` to the largest value that pads the values least when each is rounded up to a multiple."""
    least = max(1, lower)
    if least > max(values):
        return least
    return min(range(least, max(values) + 1), key=lambda size: (sum(-value % size for value in values), -size))


def layer_tuples(specs: Sequence[Spec], *, pad: bool) -> list[Group]:
    """DeepSeek V4 before 0.29.0: one group of everything that grows, windows split to match its depth
    (group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups).

    `pad` raises the pages of windows to the next page size of the growing group, as was done before 0.27.1.
    """
    growing = [position for position, spec in enumerate(specs) if spec.kind in GROWING]
    sizes = sorted({specs[position].page_bytes for position in growing})
    if pad:
        specs = [spec if spec.kind in GROWING else _raised(spec, sizes) for spec in specs]
    windows: dict[tuple[int, int | None], list[int]] = {}
    for position, spec in enumerate(specs):
        if spec.kind not in GROWING:
            windows.setdefault((spec.block_tokens, spec.window), []).append(position)
    buckets = [_bucket(layers, specs) for layers in (growing, *windows.values())]
    tuples = _least_padding([bucket.depth for bucket in buckets], buckets[0].depth)
    groups = [make_group(growing, specs, len(growing))]
    for bucket in buckets[1:]:
        groups += _split(bucket, ceil_div(bucket.depth, tuples), specs)
    return groups


def _raised(spec: Spec, sizes: Sequence[int]) -> Spec:
    page = next((size for size in sizes if size >= spec.page_bytes), None)
    if page is None:
        raise ConfigError(f"a window's page of {spec.page_bytes:,} B is larger than every page of the growing caches")
    return spec if page == spec.page_bytes else spec.padded_to(page)


def bucket_bytes(groups: Sequence[Group], *, whole_tuples: bool) -> int:
    """Bytes of a block in which each page size has as many places as its fullest group needs; with `whole_tuples`,
    every page size has as many as the fullest of all."""
    places: Counter[int] = Counter()
    for group in groups:
        places |= Counter(spec.page_bytes for spec in group.specs)
    if whole_tuples:
        return max(places.values()) * sum(places)
    return sum(page * count for page, count in places.items())
