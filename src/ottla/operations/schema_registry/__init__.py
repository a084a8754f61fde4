"""Clients of a schema registry with Confluent's API: asking it, framing records, encoding and decoding their bytes."""
