"""Protobuf: proto2 and proto3."""
