"""Lag verdicts as Burrow gives them, their HTTP API and metrics, and alerts. See docs/monitor.md."""
