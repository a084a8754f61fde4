"""Coordinator service: runs the group and transaction machines on internal topics (Kafka's GroupCoordinatorService)."""
