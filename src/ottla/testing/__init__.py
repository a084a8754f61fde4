"""Test brokers: a real broker as a child process, ready in a fraction of a second and removed without a trace.

    from ottla.testing import broker

    with broker({"num.partitions": 3}, topics={"orders": 6}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

pytest loads the fixtures of `pytest_plugin.py` by itself.
"""

from ottla.testing.broker import Broker, broker
from ottla.testing.child import BrokerError
from ottla.testing.kdc import Kdc

__all__ = ["Broker", "BrokerError", "Kdc", "broker"]
