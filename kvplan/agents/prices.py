"""What a GPU costs an hour, as the user says it. No price is bundled: they differ by contract and by month."""

import re
from dataclasses import dataclass

from kvplan.errors import UsageError
from kvplan.gpu import Gpu, find_gpu

_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/h)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of one GPU and hour, in the user's own currency."""

    each: float | None = None
    """For every GPU."""
    by_gpu: tuple[tuple[str, float], ...] = ()

    @property
    def given(self) -> bool:
        return self.each is not None or bool(self.by_gpu)

    def of(self, gpu: Gpu) -> float | None:
        """None where this GPU has no price."""
        return self.each if self.each is not None else dict(self.by_gpu).get(gpu.name)


def parse_prices(text: str | None) -> Prices:
    """`3.5/h` for every GPU, or `H200=3.5/h,B300=6/h`. Raises UsageError for anything else."""
    if text is None:
        return Prices()
    if "=" not in text:
        return Prices(each=_price(text, text))
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, price = part.partition("=")
        gpu = find_gpu(name.strip()).name
        if gpu in found:
            raise UsageError(f"--gpu-price {text[:60]!r}: {gpu} has two prices")
        found[gpu] = _price(price.strip(), text)
    return Prices(by_gpu=tuple(found.items()))


def _price(price: str, text: str) -> float:
    match = _PRICE.fullmatch(price)
    if match is None or not float(match[1]):
        raise UsageError(f"--gpu-price {text[:60]!r}: write 3.5/h, or H200=3.5/h,B300=6/h")
    return float(match[1])
