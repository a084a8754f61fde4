"""Cluster membership of a broker: controller channel, metadata polling, forwarding, connections to other brokers."""
