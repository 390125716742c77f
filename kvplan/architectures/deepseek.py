"""DeepSeek V2, V3 and V3.2, and Kimi K2, which is a DeepSeek V3 with other numbers."""

from kvplan.architectures._config import Config
from kvplan.architectures._latent import latent_decoder, latent_weights
from kvplan.architectures._moonvit import moonvit
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import tower
from kvplan.model import Inventory


@reads("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25")
def layers(cfg: Config) -> Decoder:
    """MLA in every layer, with a sparse index in V3.2."""
    return latent_decoder(cfg)


@weighs("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25")
def weights(cfg: Config) -> Inventory:
    """MTP blocks are shipped with their own copy of embedding and head."""
    inventory = latent_weights(cfg, mtp_copies=True)
    return Inventory(inventory.blocks, (*inventory.outer, *tower(cfg, moonvit)), inventory.mtp)
