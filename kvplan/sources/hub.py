"""The Hugging Face hub: config.json, and the headers of every weight file by range request. Nothing is stored.

Settings are huggingface_hub's own: HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE. Each request is made once.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import NamedTuple

from huggingface_hub import get_session, get_token, hf_hub_url

from kvplan import __version__
from kvplan.architectures import read_config
from kvplan.errors import SourceError
from kvplan.model import Model, Published, Source, Tensor
from kvplan.sources.local import CONFIG, QUANT_CONFIG, quantization_of
from kvplan.sources.reach import endpoint
from kvplan.sources.safetensors import INDEX, SINGLE, Entry, header_length, merge, parse_header, shards_of, total_size
from kvplan.sources.strict import MAX_CONFIG_BYTES, MAX_INDEX_BYTES, parse_json

REQUEST_SECONDS = 5.0
"""Without a byte from the hub."""
CONFIG_SECONDS = 10.0
HEADERS_SECONDS = 20.0
"""For the headers of all weight files together; without them the config sizes the weights."""
WORKERS = 8
FIRST_BYTES = 128 << 10
"""Asked of each weight file at once; longer headers take a second request."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    """At most one byte beyond the limit."""


class _NoAnswer(Exception):
    """The hub did not answer, or not in time."""


def fetch(repo: str, revision: str | None) -> Model:
    """A model of the hub. Raises SourceError with one line for every way in which the hub does not give it."""
    hub = _Hub(repo, revision)
    try:
        answer = hub.get(CONFIG, MAX_CONFIG_BYTES, monotonic() + CONFIG_SECONDS)
    except _NoAnswer as problem:
        raise SourceError(f"{repo}: {endpoint()} does not answer ({problem})") from None
    if answer.status != 200:
        raise SourceError(hub.refusal(answer))
    data = parse_json(answer.body, f"{repo}/{CONFIG}")
    published: Published | None = None
    tensors: tuple[Tensor, ...] = ()
    lacking = ""
    try:
        if isinstance(data, dict) and not data.get("quantization_config"):
            data = data | hub.sidecar()
        tensors, published = hub.headers()
    except _NoAnswer as problem:
        lacking = f"the headers of the weight files could not be read ({problem})"
    return read_config(
        data, name=repo, source=Source(f"{endpoint()}/{repo}/blob/{hub.revision}/{CONFIG}"),
        published=published, tensors=tensors, tensors_missing=lacking,
    )  # fmt: skip


class _Hub:
    """One repository at one revision."""

    def __init__(self, repo: str, revision: str | None) -> None:
        self.repo, self.revision = repo, revision or "main"
        token = None if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN") else get_token()
        self.request_headers = {"User-Agent": f"kvplan/{__version__}", "Accept-Encoding": "identity"}
        if token:
            self.request_headers["Authorization"] = f"Bearer {token}"
        self.deadline = 0.0

    def get(self, file: str, limit: int, deadline: float, span: tuple[int, int] | None = None) -> Answer:
        """At most `limit` bytes of a file, or of the bytes in `span`, both ends included."""
        url = hf_hub_url(self.repo, file, revision=self.revision, endpoint=endpoint())
        headers = dict(self.request_headers)
        if span:
            headers["Range"] = f"bytes={span[0]}-{span[1]}"
        seconds = min(REQUEST_SECONDS, deadline - monotonic())
        if seconds <= 0:
            raise _NoAnswer("out of time")
        try:
            with get_session().stream("GET", url, headers=headers, timeout=seconds) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > limit or monotonic() > deadline:
                        break
        except Exception as error:  # the client library differs by huggingface_hub's version, and so do its errors
            raise _NoAnswer(str(error).splitlines()[0][:120] if str(error) else type(error).__name__) from None
        if monotonic() > deadline:
            raise _NoAnswer("out of time")
        return Answer(response.status_code, response.headers, bytes(body[: limit + 1]))

    def refusal(self, answer: Answer) -> str:
        """One line for a status that is not 200."""
        code, where = answer.headers.get("x-error-code", ""), f"{endpoint()}/{self.repo}"
        has_token = "Authorization" in self.request_headers
        if code == "GatedRepo":
            then = "your HF_TOKEN has no access yet" if has_token else "set HF_TOKEN"
            return f"{self.repo} is gated: accept its terms at {where}; {then}"
        if code == "RevisionNotFound":
            return f"{self.repo} has no revision {self.revision!r}"
        if code == "EntryNotFound":
            return f"{self.repo} has no {CONFIG}; kvplan reads models in the transformers format"
        if answer.status in (401, 403) or code == "RepoNotFound":
            then = "HF_TOKEN does not open it" if has_token else "if it is private, set HF_TOKEN"
            return f"{self.repo}: no such model at {endpoint()}; {then}"
        if answer.status == 404:
            return f"{self.repo}: nothing at {where}/blob/{self.revision}/{CONFIG}"
        return f"{self.repo}: {endpoint()} answered {answer.status}"

    def sidecar(self) -> dict[str, object]:
        """The quantisation that NVIDIA ModelOpt keeps beside the config; empty where there is none."""
        answer = self.get(QUANT_CONFIG, MAX_CONFIG_BYTES, monotonic() + CONFIG_SECONDS)
        if answer.status != 200:
            return {}
        return quantization_of(parse_json(answer.body, f"{self.repo}/{QUANT_CONFIG}"), f"{self.repo}/{QUANT_CONFIG}")

    def headers(self) -> tuple[tuple[Tensor, ...], Published | None]:
        """Every tensor of the checkpoint, and its size as the index states it."""
        self.deadline = monotonic() + HEADERS_SECONDS
        answer = self.get(INDEX, MAX_INDEX_BYTES, self.deadline)
        shards, published = [SINGLE], None
        if answer.status == 200:
            what = f"{self.repo}/{INDEX}"
            index = parse_json(answer.body, what, MAX_INDEX_BYTES)
            shards, stated = shards_of(index, what), total_size(index)
            published = Published(checkpoint_bytes=stated, source=f"{INDEX}: metadata.total_size") if stated else None
        with ThreadPoolExecutor(WORKERS) as pool:
            read = list(pool.map(self._shard, shards))
        return merge(entry for entries in read for entry in entries), published

    def _shard(self, shard: str) -> list[Entry]:
        """The tensors of one weight file."""
        what = f"{self.repo}/{shard}"
        first = self.get(shard, FIRST_BYTES, self.deadline, (0, FIRST_BYTES - 1))
        if first.status not in (200, 206):
            raise _NoAnswer(f"{shard}: status {first.status}")
        total = first.headers.get("content-range", "").rpartition("/")[2]
        file_bytes = int(total) if total.isascii() and total.isdigit() and len(total) < 19 else None
        length = header_length(first.body, what, file_bytes)
        raw = first.body[8 : 8 + length]
        if len(raw) < length:
            rest = self.get(shard, length, self.deadline, (8 + len(raw), 7 + length))
            if rest.status != 206:
                raise _NoAnswer(f"{shard}: status {rest.status} for a range")
            raw += rest.body
        return parse_header(raw[:length], what, None if file_bytes is None else file_bytes - 8 - length)
