"""One file per engine: what a pool of so many bytes becomes in its own units."""
