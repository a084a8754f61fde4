"""Threads, clients and registries with which messages are read, so that no page waits for another."""
