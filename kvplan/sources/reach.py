"""Whether the hub can be reached, found out before its client is imported or a name is looked up for long."""

import os
import socket
from threading import Thread
from urllib.parse import urlparse
from urllib.request import getproxies, proxy_bypass

from kvplan.errors import SourceError

PROBE_SECONDS = 0.3
"""For the name and the connection together, so that an answer without a network comes within a second.

huggingface_hub's own HF_HUB_ETAG_TIMEOUT, where it is set, takes its place for slow networks."""


def offline() -> bool:
    """True when the environment forbids the network, as huggingface_hub reads it."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, else huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check(what: str) -> None:
    """Raise SourceError, naming `what` was wanted, when the hub is forbidden or does not take a connection."""
    ways = "give the path of its config.json"
    if offline():
        raise SourceError(f"{what} is neither bundled nor cached, and HF_HUB_OFFLINE is set; unset it, or {ways}")
    host, port = _first_hop(endpoint())
    outcome: list[str] = []
    patience = _patience()
    probe = Thread(target=_connect, args=(host, port, patience, outcome), daemon=True)
    probe.start()
    probe.join(patience)
    problem = outcome[0] if outcome else f"no answer within {patience:g} s; HF_HUB_ETAG_TIMEOUT gives it longer"
    if problem:
        raise SourceError(f"{what} is neither bundled nor cached, and {host} cannot be reached ({problem}); {ways}")


def _first_hop(address: str) -> tuple[str, int]:
    """Host and port to connect to: the hub's, or the proxy's that stands before it."""
    try:
        parsed = urlparse(address)
        host, port = parsed.hostname or "", parsed.port
        proxy = getproxies().get(parsed.scheme) or getproxies().get("all")
        if parsed.scheme not in ("http", "https") or not host:
            raise ValueError
        if proxy and not proxy_bypass(host):
            hop = urlparse(proxy if "://" in proxy else f"http://{proxy}")
            return hop.hostname or host, hop.port or 80
    except ValueError:
        raise SourceError(f"HF_ENDPOINT {address[:80]!r} is not an http address") from None
    return host, port or (443 if parsed.scheme == "https" else 80)


def _patience() -> float:
    said = os.environ.get("HF_HUB_ETAG_TIMEOUT", "")
    return min(float(said), 60.0) if said.isascii() and said.isdigit() and int(said[:3]) > 0 else PROBE_SECONDS


def _connect(host: str, port: int, patience: float, outcome: list[str]) -> None:
    """Appends what went wrong, or an empty string. Looking up a name cannot be timed out, hence the thread."""
    try:
        socket.create_connection((host, port), timeout=patience).close()
        outcome.append("")
    except TimeoutError:
        return
    except (OSError, UnicodeError) as error:
        outcome.append((getattr(error, "strerror", None) or str(error) or "no connection").lower())
