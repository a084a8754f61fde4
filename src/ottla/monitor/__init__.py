"""The lag monitor: Burrow-compatible verdicts, HTTP API and metrics, and alerts. See docs/monitor.md."""
