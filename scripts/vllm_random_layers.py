"""Random layer mixes for scripts/vllm_oracle_cases.py, as serving meets them and as rules meet their corners."""

import random
from typing import Any

Case = dict[str, Any]


def random_case(rng: random.Random) -> Case:
    """A layer mix as serving meets them: attention, windows, states, latents, drafts, in any proportion."""
    base = rng.choice([16, 16, 32, 64, 128, 256])
    width = rng.choice([1, 2])
    mode = rng.choice(["none", "align"])
    drafts = rng.choice([0, 0, 0, 1, 3, 7])
    latent = rng.random() < 0.3
    length = rng.choice([2048, 8192, 40_000, 131_072, 262_144, 1_048_576])
    case: Case = {
        "max_model_len": length, "mode": mode, "layout": "LBHNC", "dcp": 1,
        "in_flight": rng.choice([2048, 8192, 16384]),
        "available_bytes": rng.randrange(1 << 30, 80 << 30), "encoder_tokens": 1500, "layers": [], "pattern": "",
    }  # fmt: skip
    main = latent_layer(rng, base, width) if latent else full_layer(rng, base, width)
    layers = [(main, rng.randint(1, 40))]
    if rng.random() < 0.55:
        main, states = state_layers(rng, main, base, mode, drafts, length)
        layers = [(main, layers[0][1]), *states]
    elif rng.random() < 0.75:
        layers += window_layers(rng, main, base, width, latent)
    if rng.random() < 0.25:
        layers.append(draft_layer(rng, main, width))
    if rng.random() < 0.1 and not latent:
        layers.append((main | {"kind": "encoder", "window": 1500}, rng.randint(1, 8)))
    if all(layer["kind"] in ("full", "latent", "state", "encoder") for layer, _ in layers):
        case["dcp"] = rng.choice([1, 1, 2, 4, 8])
    if rng.random() < 0.3:
        case["layout"] = "BLHNC"
    case["layers"] = [layer for layer, _ in layers]
    pattern = [str(kind) for kind, (_, count) in enumerate(layers) for _ in range(count)]
    if rng.random() < 0.7:
        rng.shuffle(pattern)
    case["pattern"] = "".join(pattern)
    return case


def full_layer(rng: random.Random, base: int, width: int) -> Case:
    k_dim = rng.choice([64, 128, 128, 256, 192])
    return {
        "kind": "full", "block_tokens": base, "heads": rng.choice([1, 2, 4, 8]), "k_dim": k_dim,
        "v_dim": rng.choice([k_dim, k_dim, 128]), "dtype_bytes": width, "dcp_sharded": True, "window": None,
    }  # fmt: skip


def latent_layer(rng: random.Random, base: int, width: int) -> Case:
    dim = rng.choice([576, 576, 320, 512])
    return {
        "kind": "latent", "block_tokens": base, "heads": 1, "k_dim": dim, "v_dim": 0, "dtype_bytes": width,
        "dcp_sharded": True, "window": None, "tokens_per_row": 1, "align_bytes": None, "row_bytes": dim * width,
    }  # fmt: skip


def row_of(layer: Case) -> int:
    return int(layer.get("row_bytes") or layer["heads"] * (layer["k_dim"] + layer["v_dim"]) * layer["dtype_bytes"])


def state_layers(
    rng: random.Random, main: Case, base: int, mode: str, drafts: int, length: int
) -> tuple[Case, list[tuple[Case, int]]]:
    """One or two kinds of state beside attention whose blocks are raised to the state page."""
    heads, dim = rng.choice([4, 8, 12, 16, 32]), rng.choice([64, 128])
    shapes = [[3 + drafts, 3 * heads * dim], [heads, dim, dim]]
    sizes = [2, rng.choice([2, 4])]
    real = sum(shape_size(shape) * size for shape, size in zip(shapes, sizes, strict=True))
    row = row_of(main)
    block = max(base, base * -(-real // (base * row)))
    main = main | {"block_tokens": block}
    page = block * row
    state = {
        "kind": "state", "block_tokens": block if mode == "align" else length, "shapes": shapes, "dtype_bytes": sizes,
        "padded_bytes": page if page != real else None, "drafts": drafts,
        "checkpoints": rng.choice([0, 0, 1]) if mode == "align" else 0,
    }  # fmt: skip
    found = [(state, rng.randint(1, 70))]
    if rng.random() < 0.15:
        found.append(
            (state | {"shapes": shapes[1:], "dtype_bytes": sizes[1:], "padded_bytes": page}, rng.randint(1, 9))
        )
    return main, found


def shape_size(shape: list[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def window_layers(rng: random.Random, main: Case, base: int, width: int, latent: bool) -> list[tuple[Case, int]]:
    """Sliding or chunked layers; beside a latent cache, compressed ones as DeepSeek V4 mixes them."""
    if latent and rng.random() < 0.7:
        ring = main | {
            "kind": "sliding_latent", "block_tokens": 4, "window": 8, "dtype_bytes": 4, "k_dim": 2048,
            "row_bytes": 8192, "align_bytes": 576,
        }  # fmt: skip
        tail = main | {
            "kind": "sliding_latent",
            "block_tokens": 64,
            "window": 128,
            "row_bytes": 584,
            "align_bytes": 576,
        }
        squeezed = main | {"block_tokens": 256, "tokens_per_row": 4, "row_bytes": 584, "align_bytes": 576}
        main |= squeezed
        return [(tail, rng.randint(1, 40)), (ring, rng.randint(1, 20))]
    window = rng.choice([128, 512, 1024, 4096])
    layer = full_layer(rng, base, width) | {"kind": rng.choice(["sliding", "sliding", "chunked"]), "window": window}
    if rng.random() < 0.6 and not latent:
        layer |= {"heads": main["heads"], "k_dim": main["k_dim"], "v_dim": main["v_dim"]}
    found = [(layer, rng.randint(1, 50))]
    if rng.random() < 0.15:
        found.append((layer | {"window": 2 * window}, rng.randint(1, 20)))
    return found


def draft_layer(rng: random.Random, main: Case, width: int) -> tuple[Case, int]:
    """A draft's layers: like the target's, or a small model of its own."""
    if rng.random() < 0.6:
        return main, rng.randint(1, 5)
    own = full_layer(rng, main["block_tokens"], width)
    if rng.random() < 0.4:
        own |= {"kind": "sliding", "window": 2048}
    return own, rng.randint(1, 6)


def manager_case(rng: random.Random) -> Case:
    """A small pool and short sequences, so that decoding through several blocks takes seconds."""
    while True:
        case = random_case(rng)
        kinds = {layer["kind"] for layer in case["layers"]}
        mixed = len({layer["block_tokens"] for layer in case["layers"]}) > 1 and case["mode"] == "align"
        if "encoder" in kinds or "sliding_latent" in kinds or mixed or case["layout"] != "LBHNC":
            continue
        break
    block = rng.choice([16, 32, 64])
    for layer in case["layers"]:
        if layer["kind"] == "state":
            layer["block_tokens"] = block if case["mode"] == "align" else 4096
            layer["padded_bytes"], layer["checkpoints"] = None, 0
            layer["shapes"], layer["dtype_bytes"] = [[block * 512]], [2]
        else:
            layer |= {"block_tokens": block, "heads": 1, "k_dim": 256, "v_dim": 256, "dtype_bytes": 2}
            if layer["kind"] == "latent":
                layer |= {"k_dim": 512, "v_dim": 0, "row_bytes": 1024}
            if layer["window"]:
                layer["window"] = rng.choice([block // 2, block, 3 * block, 100])
    case["context"] = rng.randint(block + 2, 12 * block)
    case["prompt"] = max(1, case["context"] - rng.randint(block + 1, 2 * block))
    case |= {"max_model_len": 4096, "chunk": block * rng.randint(1, 6), "num_blocks": rng.randint(30, 300)}
    case["in_flight"], case["dcp"] = case["chunk"], 1
    return case
