"""Pipeline stages, cut as vLLM cuts them (distributed/utils.py, get_pp_indices)."""


def stage_bounds(layers: int, pp: int) -> list[tuple[int, int]]:
    """(start, stop) of each stage. What does not divide goes one layer each to stages from the last but one back."""
    sizes = [layers // pp] * pp
    for extra in range(layers % pp):
        sizes[-2 - extra] += 1
    stops = [sum(sizes[: stage + 1]) for stage in range(pp)]
    return [(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
