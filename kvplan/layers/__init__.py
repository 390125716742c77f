"""One file per attention kind. A layer says what it stores; no later stage knows its name."""
