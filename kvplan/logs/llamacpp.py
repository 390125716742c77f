"""llama.cpp's boot log (also ik_llama.cpp's).

The lines come from src/llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-context.cpp and llama-model.cpp.
"""

import re

from kvplan.logs.figures import Facts
from kvplan.logs.lines import Line

ENGINE = "llamacpp"
HINTS = (
    "llama_", "load_tensors", "KV self size", "buffer size", "build:", "version: ", "build_info", "general.",
    "using device", "Device 0",
)  # fmt: skip
"""Words of the lines that matter; a line without any of them is not looked at."""
_N, _F = r"(\d+(?:,\d{3})*)", r"(\d+(?:\.\d+)?)"
_KV = re.compile(
    rf"llama_kv_cache\w*: size = +{_F} MiB \( *{_N} cells, +{_N} layers(?:, +(\d+)(?:/ *(\d+))? seqs)?\)"
    rf"(?:, K \((\w+)\): +{_F} MiB, V \((\w+)\): +{_F} MiB)?"
)
_SELF = re.compile(rf"KV self size += +{_F} MiB(?:, K \((\w+)\): +{_F} MiB, V \((\w+)\): +{_F} MiB|, c\^KV \((\w+)\))?")
_STATE = re.compile(
    rf"llama_(?:memory|kv_cache)_recurrent: size = +{_F} MiB \( *{_N} cells?, +{_N} layers(?:, +(\d+) seqs.*?)?\)"
    rf"(?:, R \((\w+)\): +{_F} MiB, S \((\w+)\): +{_F} MiB)?"
)
_CONTEXT = re.compile(
    r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): (n_\w+|kv_unified) += +(\w+)"
)
_FLAGS = {"n_ctx": "ctx-size", "n_seq_max": "parallel", "n_ubatch": "ubatch-size", "kv_unified": "kv-unified"}
_WEIGHTS = re.compile(rf"load_tensors: +(\S+)(?: model)? buffer size = +{_F} MiB")
_COMPUTE = re.compile(rf": +(\S+) +compute buffer size = +{_F} MiB")
_REPO = re.compile(
    r"general\.(?:base_model\.0\.)?repo_url str += https://huggingface\.co/([\w.-]+/[\w-]+(?:\.[\w-]+)*)$"
)
_NAME = re.compile(r"general\.name(?: str)? +(?:str +)?= (.{1,100})")
_FILE = re.compile(r"llama_model_loader: loaded meta data with .* from (\S+) \(version")
_BUILD = re.compile(r"^(?:build|version): (\d+) \(|\bbuild_info: b(\d+)")
_DEVICE = re.compile(r"using device \S+ \((.{2,60}?)\) (?:\(|-)|Device 0: ([^,]+), compute")


def read(line: Line, facts: Facts) -> None:
    """Take from one line what it holds."""
    text = line.text
    if match := _FILE.search(text):
        _model(match[1], facts)
    if match := _BUILD.search(text):
        facts.version = f"b{match[1] or match[2]}"
    for flag, pattern in (("hf-repo", _REPO), ("alias", _NAME)):
        if match := pattern.search(text):
            facts.fill(flag, match[1].strip())
    if match := _DEVICE.search(text):
        facts.gpu = facts.gpu or (match[1] or match[2])
    if (match := _CONTEXT.search(text)) and match[1] in _FLAGS:
        facts.fill(_FLAGS[match[1]], {"true": True, "false": False}.get(match[2], match[2]))
    _buffers(line, facts)


def _model(path: str, facts: Facts) -> None:
    """A file that is loaded again is a new boot; another one is a draft, whose figures are its own."""
    if facts.values.get("model", path) == path:
        facts.start()
        facts.values["model"] = path
    else:
        facts.prefix = "draft_"


def _buffers(line: Line, facts: Facts) -> None:
    number = line.number
    if match := _KV.search(line.text):
        _cache(facts, number, match[1], match[7], match[9], (match[6], match[8]))
        facts.add("kv_cells", match[2], "cells", number)
        facts.add("kv_layers", match[3], "layers", number)
        streams = int(match[5] or 1)
        if match[4]:
            facts.fill("parallel", match[4])
            facts.fill("kv-unified", streams == 1)
        facts.fill("ctx-size", str(int(match[2].replace(",", "")) * streams))
    elif match := _SELF.search(line.text):
        types = (match[2], match[4]) if match[2] else (match[6], match[6]) if match[6] else (None, None)
        _cache(facts, number, match[1], match[3], match[5], types)
    elif match := _STATE.search(line.text):
        facts.add("state_slots", match[2], "cells", number)
        facts.fill("parallel", match[4] or match[2])
        for what, text in (("state_buffer", match[1]), ("conv_state", match[6]), ("ssm_state", match[8])):
            if text:
                facts.add(what, text, "MiB", number, "", 2)
    elif match := _WEIGHTS.search(line.text):
        facts.add("weights_buffer", match[2], "MiB", number, match[1], 2)
    elif match := _COMPUTE.search(line.text):
        facts.add("compute_buffer", match[2], "MiB", number, match[1], 2)


def _cache(
    facts: Facts, number: int, whole: str, key: str | None, value: str | None, types: tuple[str | None, str | None]
) -> None:
    """One KV cache; a model with windows, or with an index, prints one line for each of its caches."""
    for what, text in (("kv_buffer", whole), ("k_buffer", key), ("v_buffer", value)):
        if text:
            facts.add(what, text, "MiB", number, "", 2)
    for flag, name in (("cache-type-k", types[0]), ("cache-type-v", types[1])):
        if name:
            facts.fill(flag, name)
