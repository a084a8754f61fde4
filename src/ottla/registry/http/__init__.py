"""The registry's HTTP server: Confluent's REST API."""
