"""Avro, JSON Schema and Protobuf: documents to bytes and back, by a schema of a registry."""
