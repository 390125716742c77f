"""What one weight matrix occupies in each checkpoint format, scales and zero points included."""

from dataclasses import dataclass
from math import prod

from kvplan.units import ceil_div


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format. Matrices are (out, in) as checkpoints store them; groups run along `in`."""

    name: str
    bits: int
    group: int = 0
    """Inputs that share one scale; 0 = no group scales."""
    group_scale_bits: int = 0
    zero_bits: int = 0
    """Bits of the zero point that each group has beside its scale."""
    block: tuple[int, int] = (0, 0)
    """Rows and columns of a tile that shares one scale; (0, 0) = no tiles."""
    block_scale_bytes: int = 0
    row_scale_bytes: int = 0
    """Bytes of scale per output row."""
    column_bytes: int = 0
    """Bytes per input column: the group index of GPTQ."""
    matrix_bytes: int = 0
    """Bytes per matrix: scalar scales and packed-shape records."""

    def bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one matrix of `shape`."""
        rows, columns = shape[0], prod(shape[1:])
        total = ceil_div(rows * columns * self.bits, 8) + self.matrix_bytes
        total += rows * self.row_scale_bytes + columns * self.column_bytes
        if self.group:
            groups = rows * ceil_div(columns, self.group)
            total += ceil_div(groups * (self.group_scale_bits + self.zero_bits), 8)
        if self.block_scale_bytes:
            total += ceil_div(rows, self.block[0]) * ceil_div(columns, self.block[1]) * self.block_scale_bytes
        return total

    def describe(self) -> str:
        """The format's arithmetic in words: `4 bit + 8 bit per 32`."""
        words = f"{self.bits} bit"
        if self.group:
            words += f" + {self.group_scale_bits + self.zero_bits} bit per {self.group}"
        if self.block_scale_bytes:
            words += f" + {self.block_scale_bytes} B per {self.block[0]} × {self.block[1]}"
        if self.row_scale_bytes:
            words += f" + {self.row_scale_bytes} B a row"
        if self.column_bytes:
            words += f" + {self.column_bytes} B a column"
        if self.matrix_bytes:
            words += f" + {self.matrix_bytes} B a matrix"
        return words


PLAIN = {name: Format(name, bits) for name, bits in (("bf16", 16), ("fp16", 16), ("fp32", 32))}
MXFP4 = Format("mxfp4", 4, group=32, group_scale_bits=8)
MXFP8 = Format("mxfp8", 8, group=32, group_scale_bits=8)
INT8 = Format("int8", 8, row_scale_bytes=4)


def nvfp4(group: int = 16, input_scale: bool = True) -> Format:
    """fp4 with one fp8 scale per group and an fp32 scale per matrix; served activations add a second one."""
    return Format("nvfp4", 4, group=group, group_scale_bits=8, matrix_bytes=8 if input_scale else 4)


def fp8_tensor(scales: int = 2, scale_bytes: int = 4) -> Format:
    """fp8 with scalar scales for the weight and, where static, its input."""
    return Format("fp8", 8, matrix_bytes=scales * scale_bytes)


def fp8_row(scale_bytes: int) -> Format:
    """fp8 with one scale per output row."""
    return Format("fp8", 8, row_scale_bytes=scale_bytes)


def fp8_block(rows: int, columns: int, scale_bytes: int = 4) -> Format:
    """fp8 with one scale per tile: fp32 in DeepSeek V3, one exponent byte in DeepSeek V4."""
    return Format("fp8 block", 8, block=(rows, columns), block_scale_bytes=scale_bytes)


def int_packed(bits: int, group: int, *, zeros: bool, index: bool = False, shape_record: bool = False) -> Format:
    """Packed integers with a 16-bit scale per group (AWQ, GPTQ, compressed-tensors); group 0 = one per row."""
    record = 16 if shape_record else 0
    if not group:
        return Format(f"int{bits}", bits, row_scale_bytes=2 + (1 if zeros else 0), matrix_bytes=record)
    return Format(
        f"int{bits}", bits, group=group, group_scale_bits=16, zero_bits=bits if zeros else 0,
        column_bytes=4 if index else 0, matrix_bytes=record,
    )  # fmt: skip
