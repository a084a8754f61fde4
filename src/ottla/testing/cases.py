"""A unittest.TestCase with a broker for the class.

class OrdersTest(BrokerTestCase):
    topics = {"orders": 3}

    def test_an_order_arrives(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
"""

from __future__ import annotations

import unittest
from typing import ClassVar

from ottla.testing.broker import Broker, Settings, Topics


class BrokerTestCase(unittest.TestCase):
    """All tests of the class share `self.broker`; `settings` and `topics` are its arguments."""

    settings: ClassVar[Settings] = {}
    topics: ClassVar[Topics] = ()
    broker: ClassVar[Broker]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.broker = Broker(cls.settings, topics=cls.topics)
        cls.addClassCleanup(cls.broker.close)
        cls.broker.start()
