"""A deployment in a TOML file: what the flags can say, under the flags' names with underscores.

model = "kimi-k3"
gpu = "B300:8"
kv_cache_dtype = "fp8"
"""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from kvplan.deployment import Deployment
from kvplan.errors import UsageError
from kvplan.profiles import parse, text_of
from kvplan.units import parse_token_list

MODEL = "model"

_EXAMPLES = {
    "context": ["128K", "1M"], "max_model_len": "256K", "gpu": "B300:8", "gpu_memory": "80GiB", "weights": "1500GB",
    "kv_cache_memory": "40GiB", "snapshot_every": "64K", "baseline": "all-mla", "engine": "vllm",
    "engine_version": "0.33.0", "quantization": "fp8", "tp": 8, "max_num_seqs": 256, "block_size": 64,
    "draft": "llama-3.1-8b", "speculative_config": '{"method": "mtp", "num_speculative_tokens": 2}',
    "speculative_algorithm": "EAGLE", "cache_type_k": "q8_0", "cache_type_v": "q8_0", "calibration": "auto",
    "gpu_memory_utilization": 0.92, "page_size": 64, "tokens_per_block": 32, "max_num_batched_tokens": 8192,
    "prefix_match_unit": "16K", "prefix_cache_retention_interval": "64K", "max_total_tokens": "1M", "max_tokens": "1M",
    "ctx_size": "128K", "new_tokens": "2K", "max_tpot_ms": 50, "max_ttft_s": 30, "max_running_requests": 64,
    "max_batch_size": 64, "mamba_block_size": 256, "num_gpu_blocks_override": 1024, "ubatch_size": 512,
    "chunked_prefill_size": 8192, "max_mamba_cache_size": 128, "cuda_graph_max_bs": 64, "gpus": 8,
}  # fmt: skip
"""What `template` shows where neither the default nor the type says it."""


def read_deployment(path: Path) -> tuple[str | None, dict[str, Any]]:
    """(model, flags) of a file. Raises ProfileError for what is no TOML, UsageError naming the key that is wrong."""
    if not path.exists():
        raise UsageError(f"--deployment {path}: no such file; `kvplan init -o {path}` writes one")
    document = parse(text_of(path), path)
    model = document.pop(MODEL, None)
    if model is not None and (not isinstance(model, str) or not model.strip()):
        raise UsageError(f"{path}: {MODEL}: a model's name, id or path is expected")
    for key, value in document.items():
        if key not in Deployment.model_fields:
            raise UsageError(f"{path}: {_unknown(key)}")
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"{path}: {key} is empty")
    try:
        Deployment.model_validate({key: _typed(key, value) for key, value in document.items()}, strict=True)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {said[:1].lower()}{said[1:]}") from None
    return model, document


def _typed(key: str, value: Any) -> Any:
    """A value as the model has it: lengths may be a list, or one text with commas."""
    if key == "context" and isinstance(value, str):
        return tuple(parse_token_list(value))
    return tuple(value) if isinstance(value, list) else value


def _unknown(key: str) -> str:
    """What is wrong with a key, and the nearest that is known."""
    known = [MODEL, *Deployment.model_fields]
    plain = key.lstrip("-").replace("-", "_")
    near = [plain] if plain in known else get_close_matches(plain, known, n=1, cutoff=0.6)
    return f"{key[:60]}: no such key{f'; did you mean {near[0]}?' if near else '; `kvplan init` writes them all'}"


def template(helps: Mapping[str, str], model: str | None = None) -> str:
    """A file with every key, commented out, in the groups of the help. `helps` are the flags' texts by name."""
    groups: dict[str, list[str]] = {}
    for name, field in Deployment.model_fields.items():
        said = helps.get(name, "")
        engine, separator, rest = said.partition(": ")
        group, text = (engine, rest) if separator and " " not in engine else ("", said)
        groups.setdefault(group.removesuffix("'s"), []).append(f"# {text or name}\n# {name} = {_value(name, field)}")
    chosen = f'{MODEL} = "{model}"' if model else f'# {MODEL} = "kimi-k3"'
    lines = [
        "# A deployment for kvplan: kvplan estimate --deployment THIS. Take the # off what you set.",
        "# What is typed as a flag wins. Keys are the flags, with underscores.",
        "",
        "# Bundled name, Hugging Face id, config.json, directory or .gguf; where no MODEL is typed.",
        chosen,
    ]
    for group, rows in groups.items():
        lines += ["", *([f"# {'-' * 8} {group}", ""] if group else []), "\n\n".join(rows)]
    return "\n".join(lines) + "\n"


def _value(name: str, field: FieldInfo) -> str:
    if name in _EXAMPLES:
        return json.dumps(_EXAMPLES[name])
    if field.default is not None:
        return json.dumps(field.default)
    kinds = _plain(field.annotation)
    for kind, example in ((bool, True), (int, 1), (float, 0.9)):
        if kind in kinds:
            return json.dumps(example)
    return json.dumps(next(value for value in kinds if isinstance(value, str)))


def _plain(annotation: Any) -> list[Any]:
    """The types, and the words of a Literal, that an annotation is made of."""
    parts = get_args(annotation)
    return [one for part in parts for one in _plain(part)] if parts else [annotation]
