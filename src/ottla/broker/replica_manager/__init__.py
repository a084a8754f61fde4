"""Replica manager: fetchers, ISR proposals and throttles around replication (Kafka's ReplicaManager).

The partitions of this broker: replication/replica_set.py.
"""
