"""Confluent's REST API over the registry."""
