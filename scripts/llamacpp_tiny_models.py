"""Write tiny random GGUF models with real head, state and latent sizes, boot them, and print what llama.cpp reserves.

    python scripts/llamacpp_tiny_models.py DIRECTORY > lines.json

Needs llama-cpp-python (its source build takes minutes, so this stays out of the test suite), gguf and numpy. The
models have few layers and a narrow body; what a cache line depends on is as wide as in the published models.
tests/engines/test_llamacpp.py compares kvplan with a frozen run.
"""

import argparse
import ctypes
import json
import re
from pathlib import Path

import llama_cpp
from llamacpp_tiny_archs import MODELS

CONTEXTS = (
    {"ctx_size": 4096, "parallel": 1, "kv_unified": False},
    {"ctx_size": 8192, "parallel": 4, "kv_unified": False},
    {"ctx_size": 10000, "parallel": 3, "kv_unified": False},
    {"ctx_size": 8192, "parallel": 4, "kv_unified": True},
    {"ctx_size": 32768, "parallel": 2, "kv_unified": True, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    {"ctx_size": 4096, "parallel": 2, "kv_unified": False, "cache_type_k": "q8_0", "cache_type_v": "q4_0"},
    {"ctx_size": 4096, "parallel": 2, "kv_unified": False, "swa_full": True},
)
TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}
LINE = re.compile(r"(?:llama_kv_cache|llama_memory_recurrent)\S*: size = .*")


def boot(path, flags, lines):
    """Load and make one context; the lines that llama.cpp logs land in `lines`."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"{path}: llama.cpp does not load it\n" + "".join(lines[-20:]))
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = flags["ctx_size"], flags["parallel"]
    params.kv_unified, params.swa_full = flags["kv_unified"], flags.get("swa_full", False)
    params.type_k, params.type_v = (TYPES[flags.get(name, "f16")] for name in ("cache_type_k", "cache_type_v"))
    params.n_batch, params.n_ubatch, params.flash_attn_type = 512, 512, 1
    context = llama_cpp.llama_init_from_model(model, params)
    if context:
        llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return bool(context)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", help="one architecture")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    lines = []

    @llama_cpp.llama_log_callback
    def heard(_level, text, _data):
        lines.append(text.decode())

    llama_cpp.llama_log_set(heard, ctypes.c_void_p(0))
    rows = []
    for name, make in MODELS.items():
        if args.only not in (None, name):
            continue
        tiny, path = make(), args.directory / f"{name}.gguf"
        tiny.write(path)
        for flags in CONTEXTS:
            lines.clear()
            if not boot(path, flags, lines):
                rows.append({"arch": name, "flags": flags, "refused": lines[-1].strip()})
                continue
            printed = [match[0] for line in "".join(lines).splitlines() if (match := LINE.search(line))]
            rows.append({"arch": name, "flags": flags, "printed": printed})
        path.unlink()
        rows[-len(CONTEXTS)] |= {"model_type": tiny.model_type, "layers": tiny.layers}
    print(json.dumps({"llama-cpp-python": llama_cpp.__version__, "cases": rows}))


if __name__ == "__main__":
    main()
