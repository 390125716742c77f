"""The hub against a server on this machine, and the time it takes to learn that there is none."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvplan.deployment import Layout
from kvplan.errors import KvplanError, SourceError
from kvplan.sources import reach, resolve
from kvplan.weights import weigh

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16",
}  # fmt: skip
PREFIX = "/acme/tiny/resolve/main/"


def weight_file(name: str, rows: int, padding: int = 0) -> bytes:
    entry = {name: {"dtype": "BF16", "shape": [rows, 64], "data_offsets": [0, rows * 128]}}
    raw = json.dumps({"__metadata__": {"pad": " " * padding}, **entry}).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(rows * 128)


class Hub:
    """Files by path, statuses by path, and what was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.pause = 0.0

    def serve(self, **files: bytes) -> None:
        self.files |= {PREFIX + name.replace("__", "."): body for name, body in files.items()}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
            time.sleep(state.pause)
            if self.path not in state.files:
                status, code = state.refusals.get(self.path, (404, "EntryNotFound"))
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body, span = state.files[self.path], self.headers.get("Range")
            if span is not None:
                first, last = (int(part) for part in span.removeprefix("bytes=").split("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
                body = body[first : last + 1]
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def refusal(argument: str) -> str:
    with pytest.raises(KvplanError) as caught:
        resolve(argument)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_config_and_one_weight_file(hub: Hub) -> None:
    hub.serve(config__json=json.dumps(CONFIG).encode(), model__safetensors=weight_file("lm_head.weight", 100))
    model = resolve("acme/tiny")
    report = weigh(model, Layout())
    assert (model.name, report.kind, report.total_bytes) == ("acme/tiny", "exact", 12800)
    assert [span for path, span, _ in hub.asked if path.endswith("model.safetensors")] == ["bytes=0-131071"]


def test_headers_of_every_shard_by_range(hub: Hub) -> None:
    names = {f"model-{number}.safetensors": f"model.layers.0.mlp.part{number}.weight" for number in range(20)}
    index = {"metadata": {"total_size": 20 * 1280}, "weight_map": {name: shard for shard, name in names.items()}}
    hub.serve(config__json=json.dumps(CONFIG).encode())
    hub.files[PREFIX + "model.safetensors.index.json"] = json.dumps(index).encode()
    hub.files |= {PREFIX + shard: weight_file(name, 10, padding=200_000) for shard, name in names.items()}
    report = weigh(resolve("acme/tiny"), Layout())
    assert (report.kind, report.total_bytes) == ("exact", 20 * 1280)
    ranges = [span for path, span, _ in hub.asked if "model-" in path]
    assert len(ranges) == 40 and all(ranges)


def test_no_weight_files_leaves_the_config_to_size_them(hub: Hub) -> None:
    hub.serve(config__json=json.dumps(CONFIG).encode())
    model = resolve("acme/tiny")
    assert "weight files could not be read (model.safetensors: status 404)" in model.tensors_missing
    assert weigh(model, Layout()).kind == "derived"


def test_a_sidecar_says_the_quantisation(hub: Hub) -> None:
    quantization = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}
    hub.serve(config__json=json.dumps(CONFIG).encode(), hf_quant_config__json=json.dumps(quantization).encode())
    assert resolve("acme/tiny").quantization["quant_algo"] == "NVFP4"


def test_a_revision(hub: Hub) -> None:
    hub.files["/acme/tiny/resolve/v2/config.json"] = json.dumps(CONFIG).encode()
    assert resolve("acme/tiny@v2").source.origin.endswith("/acme/tiny/blob/v2/config.json")
    hub.refusals["/acme/tiny/resolve/v3/config.json"] = (404, "RevisionNotFound")
    assert "no revision 'v3'" in refusal("acme/tiny@v3")


def test_an_address_of_the_same_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.serve(config__json=json.dumps(CONFIG).encode())
    assert resolve("https://huggingface.co/acme/tiny/blob/main/config.json").name == "acme/tiny"
    assert "only addresses of models" in refusal("https://example.com/acme/tiny")
    assert "ORGANISATION/NAME" in refusal("https://huggingface.co/acme")


def test_the_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.serve(config__json=json.dumps(CONFIG).encode())
    resolve("acme/tiny")
    assert {token for _, _, token in hub.asked} == {"Bearer hf_secret"}


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "GatedRepo", "is gated: accept its terms"), (403, "GatedRepo", "is gated: accept its terms"),
        (401, "RepoNotFound", "no such model"), (404, "RepoNotFound", "no such model"),
        (404, "EntryNotFound", "has no config.json"), (404, "", "nothing at"), (429, "", "answered 429"),
        (500, "", "answered 500"),
    ],
)  # fmt: skip
def test_what_the_hub_refuses(hub: Hub, status: int, code: str, words: str) -> None:
    hub.refusals[PREFIX + "config.json"] = (status, code)
    assert words in refusal("acme/tiny")
    assert len(hub.asked) == 1


def test_a_gated_model_says_what_the_token_lacks(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.refusals[PREFIX + "config.json"] = (403, "GatedRepo")
    assert "set HF_TOKEN" in refusal("acme/tiny")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    said = refusal("acme/tiny")
    assert "your HF_TOKEN has no access yet" in said and "hf_secret" not in said


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b'{"model_type": NaN}', b"<html></html>", b""])
def test_an_answer_that_is_no_config(hub: Hub, body: bytes) -> None:
    hub.serve(config__json=body)
    assert "acme/tiny" in refusal("acme/tiny")


def test_an_answer_that_is_too_long(hub: Hub) -> None:
    hub.serve(config__json=b" " * ((16 << 20) + 100))
    assert "larger than 16 MiB" in refusal("acme/tiny")


def test_a_damaged_weight_file_is_an_error(hub: Hub) -> None:
    hub.serve(config__json=json.dumps(CONFIG).encode(), model__safetensors=b"\xff" * 100)
    assert "not a safetensors file" in refusal("acme/tiny")


def test_a_slow_hub_is_given_up_on(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvplan.sources import hub as client

    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.2)
    hub.pause = 1.0
    assert "does not answer" in refusal("acme/tiny")


def within_a_second(call: Callable[[], str]) -> str:
    started = time.monotonic()
    said = call()
    assert time.monotonic() - started < 1
    return said


def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        assert "cannot be reached (connection refused)" in within_a_second(lambda: refusal("acme/tiny"))


@pytest.mark.parametrize("address", ["https://hub.invalid", "http://127.0.0.1:1"])
def test_no_network(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert "cannot be reached" in within_a_second(lambda: refusal("acme/tiny"))


def test_a_name_that_is_looked_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> socket.socket:
        time.sleep(1.5)
        raise OSError

    monkeypatch.setattr(reach.socket, "create_connection", never)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert "no answer within" in within_a_second(lambda: refusal("acme/tiny"))


def test_patience_can_be_lengthened(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> socket.socket:
        time.sleep(0.5)
        raise OSError(0, "Too late")

    monkeypatch.setattr(reach.socket, "create_connection", late)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "5")
    assert "(too late)" in refusal("acme/tiny")


def test_offline_says_so() -> None:
    assert "HF_HUB_OFFLINE is set" in within_a_second(lambda: refusal("acme/tiny"))


@pytest.mark.parametrize("address", ["ftp://x", "nonsense", "http://", "http://[", "http://x:99999999"])
def test_an_endpoint_that_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert "HF_ENDPOINT" in refusal("acme/tiny")


def cached(root: Path, repo: str, commit: str = "0" * 40, reference: str = "main") -> Path:
    folder = root / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / reference).write_text(commit)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    return snapshot


def test_the_cache_comes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = cached(tmp_path, "acme/tiny")
    (snapshot / "model.safetensors").write_bytes(weight_file("lm_head.weight", 100))
    model = resolve("acme/tiny")
    assert (model.name, model.snapshot) == ("acme/tiny", str(snapshot))
    assert weigh(model, Layout()).kind == "exact"


def test_revisions_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(tmp_path, "acme/tiny", "a" * 40, "v2")
    assert resolve("acme/tiny@v2").name == resolve(f"acme/tiny@{'a' * 40}").name == "acme/tiny"
    assert "neither bundled nor cached" in refusal("acme/tiny")


def test_a_reference_may_not_leave_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    cached(tmp_path, "acme/tiny")
    for reference in ("../../../..", "..", "/etc", "a/b", "", "\xff"):
        (tmp_path / "hub" / "models--acme--tiny" / "refs" / "main").write_text(reference)
        assert "neither bundled nor cached" in refusal("acme/tiny")
    assert "not a branch" in refusal("acme/tiny@../../x")


def test_an_empty_snapshot_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (cached(tmp_path, "acme/tiny") / "config.json").unlink()
    with pytest.raises(SourceError, match="neither bundled nor cached"):
        resolve("acme/tiny")
