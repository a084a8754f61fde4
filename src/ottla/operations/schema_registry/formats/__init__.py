"""Encoding and decoding of Avro, JSON Schema and Protobuf documents."""
