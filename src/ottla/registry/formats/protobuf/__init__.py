"""Protobuf: syntax 2 and 3."""
