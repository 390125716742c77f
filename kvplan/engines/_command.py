"""The command that starts an engine with a deployment, in the engine's own words."""

from dataclasses import dataclass

from kvplan.deployment import Deployment, Layout

_LONG = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """How one engine spells its start: the words before the model, and its flag for each of ours."""

    words: str
    axes: dict[str, str]
    """tp, pp, dp, dcp and ep as this engine calls them; left out where they are 1."""
    limit: str
    """The flag for the longest sequence."""
    flags: dict[str, str]
    """Deployment fields by name; only those that the user set are spelled."""
    spread_experts: str = ""
    """The flag that spreads experts over all ranks, where ep has no size of its own."""

    def spell(self, model: str, layout: Layout, deployment: Deployment, limit_tokens: int) -> str:
        """One line for a shell."""
        parts = [f"{self.words} {model}"]
        parts += [f"{flag} {getattr(layout, axis)}" for axis, flag in self.axes.items() if getattr(layout, axis) > 1]
        parts += [self.spread_experts] if self.spread_experts and layout.ep > 1 else []
        parts.append(f"{self.limit} {limit_tokens}")
        for name, flag in self.flags.items():
            value = getattr(deployment, name)
            if name not in deployment.model_fields_set or value is None:
                continue
            if value is False:
                open_by_default = type(deployment).model_fields[name].default is None
                parts += [f"--no-{flag.removeprefix('--')}"] if open_by_default else []
            else:
                parts.append(flag if value is True else f"{flag} {_LONG.get(value, value)}")
        return " ".join(parts)


VLLM = CommandLine(
    "vllm serve",
    {"tp": "-tp", "pp": "-pp", "dp": "-dp", "dcp": "-dcp"},
    "--max-model-len",
    {
        "kv_cache_dtype": "--kv-cache-dtype",
        "mamba_ssm_dtype": "--mamba-ssm-cache-dtype",
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "kv_cache_memory": "--kv-cache-memory-bytes",
        "max_num_seqs": "--max-num-seqs",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "block_size": "--block-size",
        "enable_prefix_caching": "--enable-prefix-caching",
        "mamba_cache_mode": "--mamba-cache-mode",
        "quantization": "--quantization",
        "enforce_eager": "--enforce-eager",
    },
    "--enable-expert-parallel",
)
SGLANG = CommandLine(
    "python -m sglang.launch_server --model-path",
    {"tp": "--tp-size", "pp": "--pp-size", "dp": "--dp-size", "dcp": "--dcp-size", "ep": "--ep-size"},
    "--context-length",
    {
        "kv_cache_dtype": "--kv-cache-dtype",
        "mamba_ssm_dtype": "--mamba-ssm-dtype",
        "mem_fraction_static": "--mem-fraction-static",
        "mamba_full_memory_ratio": "--mamba-full-memory-ratio",
        "max_mamba_cache_size": "--max-mamba-cache-size",
        "max_running_requests": "--max-running-requests",
        "page_size": "--page-size",
        "quantization": "--quantization",
        "enable_dp_attention": "--enable-dp-attention",
    },
)
