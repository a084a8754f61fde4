"""Replica manager: fetchers, ISR proposals and throttles around replication (Kafka's ReplicaManager)."""
