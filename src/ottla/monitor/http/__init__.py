"""The monitor's HTTP server: Burrow's API and metrics."""
