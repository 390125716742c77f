"""GPU profiles: what drivers print, how names are found, and what the machine's own driver may answer."""

import subprocess
from typing import Any

import pytest

from kvplan import gpu as module
from kvplan.errors import NO_DEVICE, DeviceError, ProfileError
from kvplan.gpu import auto_gpu, detect, find_gpu, list_gpus
from kvplan.profiles import paths
from kvplan.units import GIB, MIB

# MiB as nvidia-smi (or amd-smi) prints them in public logs.
DRIVER_MIB = {
    "h20": 97871, "h100": 81559, "h100-pcie": 81559, "h200": 143771, "b200": 183359, "b300": 275040, "gb200": 189471,
    "gb300": 284208, "a100-40gb": 40960, "a100-80gb": 81920, "l4": 23034, "l40s": 46068, "rtx-3090": 24576,
    "rtx-4090": 24564, "rtx-5090": 32607, "rtx-pro-6000": 97887, "mi325x": 262128, "mi355x": 294896,
}  # fmt: skip
# "GPU 0 has a total capacity of … GiB", as public out-of-memory messages have it.
CUDA_GIB = {
    "h100": 79.18, "h200": 139.81, "b200": 178.35, "b300": 267.69, "gb200": 184.31, "gb300": 276.50,
    "rtx-5090": 31.36, "rtx-pro-6000": 94.97, "gb10": 121.69, "mi300x": 191.98, "mi325x": 255.98, "mi355x": 287.98,
}  # fmt: skip


def answer(monkeypatch: pytest.MonkeyPatch, stdout: str, returncode: int = 0) -> None:
    def run(*_: Any, **__: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess([], returncode, stdout, "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(("name", "mib"), DRIVER_MIB.items())
def test_memory_is_the_drivers(name: str, mib: int) -> None:
    assert find_gpu(name).memory_bytes == mib * MIB


def test_memory_of_an_mi300x() -> None:
    assert find_gpu("MI300X").memory_bytes == 206_141_652_992


@pytest.mark.parametrize(("name", "gib"), CUDA_GIB.items())
def test_memory_that_a_process_sees(name: str, gib: float) -> None:
    assert round(find_gpu(name).engine_memory_bytes / GIB, 2) == gib


def test_every_profile_is_whole_and_named_as_its_file() -> None:
    names = [gpu.name for gpu in list_gpus()]
    assert names == sorted(paths("gpus"))
    assert len(names) >= 20
    for gpu in list_gpus():
        for reference in (gpu.source.memory, gpu.source.bandwidth, gpu.source.flops, gpu.source.links):
            assert reference.url.startswith("https://")
            assert reference.date[:2] == "20"
        assert gpu.engine_memory_bytes <= gpu.memory_bytes
        assert gpu.fp8_flops is None or gpu.fp8_flops > gpu.bf16_flops


def test_no_two_profiles_share_a_name() -> None:
    taken = [name.lower() for gpu in list_gpus() for name in (gpu.name, *gpu.aliases)]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H200", "h200"), ("a100", "a100-80gb"), ("dgx_spark", "gb10"), ("RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"), ("NVIDIA B300 SXM6 AC", "b300"), ("AMD Instinct MI355X", "mi355x"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"), ("h100-sxm", "h100"),
    ],
)  # fmt: skip
def test_names_as_people_and_drivers_write_them(typed: str, name: str) -> None:
    assert find_gpu(typed).name == name


def test_an_unknown_name_says_what_is_near() -> None:
    with pytest.raises(ProfileError, match=r"h2000.*did you mean h200"):
        find_gpu("h2000")
    with pytest.raises(ProfileError, match="kvplan gpus list"):
        find_gpu("£$%")


def test_a_user_profile_with_a_stray_key_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = paths("gpus")["l4"].read_text()
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "mine.toml").write_text(text.replace("sm = 89", "sm = 89\nsmm = 1"))
    monkeypatch.setenv("KVPLAN_HOME", str(tmp_path))
    paths.cache_clear()
    module._by_name.cache_clear()
    try:
        with pytest.raises(ProfileError, match=r"mine\.toml: smm"):
            find_gpu("mine")
    finally:
        paths.cache_clear()
        module._by_name.cache_clear()


def test_the_drivers_memory_beats_the_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "NVIDIA H200, 143771, 608\n" * 8)
    gpu, count = detect()
    assert (gpu.name, count) == ("h200", 8)
    assert gpu.memory_bytes == 143771 * MIB
    assert gpu.engine_memory_bytes == (143771 - 608) * MIB


def test_a_driver_that_reports_no_memory_leaves_the_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "NVIDIA GB10, [N/A], [N/A]\n")
    assert auto_gpu().memory_bytes == find_gpu("gb10").memory_bytes


@pytest.mark.parametrize(
    ("stdout", "code", "says"),
    [
        ("", 0, "lists none"), ("No devices were found\n", 6, "lists none"),
        ("NVIDIA L4, 23034, 500\nNVIDIA H200, 143771, 608\n", 0, "different GPUs"),
    ],
)  # fmt: skip
def test_no_usable_answer(monkeypatch: pytest.MonkeyPatch, stdout: str, code: int, says: str) -> None:
    answer(monkeypatch, stdout, code)
    with pytest.raises(DeviceError, match=says) as caught:
        auto_gpu()
    assert caught.value.exit_code == NO_DEVICE


@pytest.mark.parametrize(
    "failure", [FileNotFoundError(), PermissionError(), subprocess.TimeoutExpired("nvidia-smi", 3)]
)
def test_no_driver_at_all(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DeviceError, match="--gpu-memory"):
        auto_gpu()
