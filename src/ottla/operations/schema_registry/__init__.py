"""Clients of Confluent-compatible schema registries: REST calls, wire format, serializers and deserializers."""
