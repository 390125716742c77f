# Everything CI does, in the order it does it.
default: lint types imports test

lint:
    ruff format --check .
    ruff check .

types:
    mypy

imports:
    lint-imports

test *args:
    pytest -n auto {{args}}

# Times and memory beside kvfit and hf-mem, measured in one run.
bench *args:
    python scripts/bench.py {{args}}

# Recompute the figures of public start-up logs; add --pool to predict pool and weights from the flags alone.
engine-logs logs *args:
    python scripts/engine_logs.py {{logs}} {{args}}

# Write the reports of reports/ and their index anew.
reports:
    python scripts/make_reports.py

# The tables and outputs of docs/commands, from the commands.
pages:
    python scripts/command_pages.py

# Configurations and seconds of `kvplan frontier` over every bundled GPU.
bench-frontier *args:
    python scripts/bench_frontier.py {{args}}
