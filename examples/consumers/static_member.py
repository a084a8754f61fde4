"""Static members: a process that comes back within its session time-out has its partitions again, without a rebalance.

Give every process a name of its own that survives its restart (a host name, the number of a pod). Its leaving is then
noticed only when `session.timeout.ms` has passed: choose that longer than a restart takes.
"""

from confluent_kafka import Consumer


def static_member(bootstrap: str, group: str, instance: str, session_timeout_ms: int = 45_000) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": instance,
            "session.timeout.ms": session_timeout_ms,
            "auto.offset.reset": "earliest",
        }
    )
