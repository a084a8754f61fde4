"""Metrics endpoint: serves the counters of metrics over HTTP, for Prometheus and Jolokia."""
