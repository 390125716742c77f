"""A coverage-guided run over everything that kvplan reads, for a bounded time.

    pip install atheris && python scripts/fuzz.py [--seconds 60] [TARGET …]

Targets: config, header, log, trace, toml, calibration, plan, command. Each runs in a process of its own under
libFuzzer; anything but a KvplanError, an input that takes over ten seconds, or 1 GB of memory stops it, and the input
is left in the folder that is printed. Exit code 1 when one was found.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGETS = ("config", "header", "log", "trace", "toml", "calibration", "plan", "command")


def child(target: str, arguments: list[str]) -> None:
    """Run one target under libFuzzer; does not return."""
    import atheris

    sys.path.insert(0, str(HERE.parent / "tests"))
    with atheris.instrument_imports(include=["kvplan", "fuzz_kit"]):
        import fuzz_kit
        from kvplan.errors import KvplanError

    def one(data: bytes) -> None:
        try:
            fuzz_kit.TARGETS[target](data)
        except KvplanError:
            return

    corpus = Path(arguments[-1])
    for number, seed in enumerate(fuzz_kit.seeds(target)):
        (corpus / f"seed{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def run(target: str, seconds: int, kept: Path) -> bool:
    """True where nothing was found. Prints the executions and the coverage that libFuzzer reached."""
    corpus = kept / target
    corpus.mkdir()
    command = [
        sys.executable, __file__, "--child", target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024",
        "-max_len=20000", f"-artifact_prefix={kept}/{target}-", str(corpus),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    last = next((line for line in reversed(done.stderr.splitlines()) if "cov:" in line), "no execution")
    print(f"{target:12} {'nothing found' if done.returncode == 0 else 'FOUND'}  {' '.join(last.split())[:90]}")
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-30:]))
    return done.returncode == 0


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *TARGETS])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    options = parser.parse_args()
    kept = Path(tempfile.mkdtemp(prefix="kvplan-fuzz-"))
    clean = [run(target, options.seconds, kept) for target in options.targets or TARGETS]
    if not all(clean):
        sys.exit(f"inputs are in {kept}")


if __name__ == "__main__":
    main()
