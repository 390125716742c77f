"""A model's weights as parts that pipeline and tensor parallelism can place: from headers, or from the config."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvplan.model import Inventory, Model, Split, Tensor, Weight
from kvplan.weights.names import Module, module_of
from kvplan.weights.rule import Rule

FIRST, LAST, MTP = "first", "last", "mtp"
Place = int | str
_OUTER_PLACE = {"embedding": FIRST, "vision": FIRST}


@dataclass(frozen=True, slots=True)
class Part:
    """`count` equal tensors in one place. `place` is a decoder block's number, or "first", "last" or "mtp"."""

    place: Place
    role: str
    split: Split
    format: str
    shape: tuple[int, ...]
    bytes: int
    """Of one tensor, scales included."""
    params: int
    """Of one tensor."""
    count: int = 1
    heads: int = 0
    inner: int = 0
    """For routed experts: the width that tensor parallelism cuts."""
    arithmetic: str = ""
    """How the bytes follow from the shape."""

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.count

    @property
    def total_params(self) -> int:
        return self.params * self.count


def from_inventory(inventory: Inventory, rule: Rule) -> list[Part]:
    """Every weight in the format that the rule gives it."""
    parts: list[Part] = []
    depth = len(inventory.blocks)
    for number, block in enumerate(inventory.blocks):
        parts += (_part(weight, number, (f"model.layers.{number}.{weight.name}",), rule) for weight in block)
    for weight in inventory.outer:
        path = weight.name if weight.role in ("head", "vision") else f"model.{weight.name}"
        parts.append(_part(weight, _OUTER_PLACE.get(weight.role, LAST), (path,), rule))
    for weight in inventory.mtp:
        paths = (f"model.layers.{depth}.{weight.name}", f"mtp.layers.0.{weight.name}", f"mtp.0.{weight.name}")
        parts.append(_part(weight, MTP, paths, rule))
    return parts


def _part(weight: Weight, place: Place, paths: tuple[str, ...], rule: Rule) -> Part:
    format_ = rule.plain if weight.role == "vision" else rule.format_of(paths, weight.role, weight.shape)
    return Part(
        place, weight.role, weight.split, format_.name, weight.shape, format_.bytes(weight.shape),
        weight.params // weight.count, weight.count, weight.heads, _inner(weight.name, weight.shape, weight.role),
        format_.describe(),
    )  # fmt: skip


def _inner(name: str, shape: tuple[int, ...], role: str) -> int:
    """The width of a routed expert that is cut by tensor parallelism; a fused gate and up counts once."""
    if role != "expert" or len(shape) != 2:
        return 0
    if "down" in name or name.endswith((".w2", ".output_linear")):
        return shape[1]
    return shape[0] // 2 if "gate_up" in name or name.endswith((".w13", ".input_linear")) else shape[0]


def from_headers(model: Model) -> list[Part]:
    """Every tensor that the checkpoint's headers list, its role and split taken from the module's name."""
    known = dict(_known(model.weights)) if model.weights else {}
    kv_heads = min((weight.heads for weight in known.values() if weight.heads), default=0)
    bits = _packed_bits(model.quantization)
    parts = []
    for tensor in model.tensors:
        module = module_of(tensor.name, len(model.blocks))
        weight = known.get(module.name)
        role = weight.role if weight and module.place != "vision" else module.role
        split = weight.split if weight and module.place != "vision" else module.split
        heads = weight.heads if weight else kv_heads if module.key_value else 0
        inner = _inner(weight.name, weight.shape, role) if weight else 0
        fused = _fused_experts(tensor, role, model.num_experts)
        parts.append(
            Part(
                _place(module), role, split, tensor.dtype, tensor.shape, tensor.bytes // fused,
                module.params(tensor, bits) // fused, tensor.count * fused, heads, inner, "as the header lists it",
            )
        )  # fmt: skip
    return parts


def _packed_bits(quantization: dict[str, Any]) -> int:
    """Bits of a weight that is packed into 32-bit words; 4 unless the config says otherwise."""
    groups = quantization.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    bits = weights.get("num_bits") if isinstance(weights, dict) else quantization.get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 8 else 4


def _fused_experts(tensor: Tensor, role: str, experts: int) -> int:
    """Experts that one tensor holds side by side; 1 where each has its own."""
    fused = role == "expert" and "*" not in tensor.name and experts > 0 and experts in tensor.shape
    return experts if fused and tensor.bytes % experts == 0 else 1


def _known(inventory: Inventory) -> Iterator[tuple[str, Weight]]:
    for block in dict.fromkeys(inventory.blocks):
        yield from ((weight.name, weight) for weight in block)
    yield from ((weight.name, weight) for weight in inventory.outer)


def _place(module: Module) -> Place:
    if isinstance(module.place, int) or module.place in (FIRST, LAST, MTP):
        return module.place
    return FIRST
