"""The suite of other owners' kernels without the owners: what is timed beside what."""

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import peers, suites  # noqa: E402


@pytest.fixture
def all_there(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: name)


def test_every_peer_stands_beside_ours(all_there):
    cases = suites.cases("peers")
    ours = {(c.kernel, tuple(c.shape.items())) for c in cases if c.owner == "kvplan"}
    theirs = [c for c in cases if c.owner in peers.PACKAGES]
    assert {(c.kernel, tuple(c.shape.items())) for c in theirs} <= ours
    assert {(c.owner, c.kernel) for c in theirs} == {
        *((owner, kernel) for owner in ("fla", "sglang", "vllm") for kernel in ("kda_decode", "kda_prefill")),
        *((owner, "mla_decode") for owner in ("flashinfer", "sglang", "vllm")),
    }
    assert len({c.key for c in cases}) == len(cases)


def test_no_package_no_peer(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert {c.owner for c in suites.cases("peers")} == {"kvplan", "torch"}
    assert peers.cases("full") == []
