"""Agents over time: traces, sessions at a stated risk, snapshots, workflows. Nothing here knows a layer's kind."""
