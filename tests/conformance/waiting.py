"""Waiting for what a broker may tell a little later: Apache Kafka publishes metadata after it has answered."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer

EVENTUALLY_SECONDS_MAX = 20.0
ERROR_SECONDS_MAX = 20.0


def eventually(check: Callable[[], bool], seconds_max: float = EVENTUALLY_SECONDS_MAX) -> bool:
    """Whether the check becomes true in time."""
    deadline = time.monotonic() + seconds_max
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def first_error(settings: Mapping[str, Any]) -> KafkaError:
    """The error of a failed login in librdkafka: its calls report it only after their timeout."""
    told: list[KafkaError] = []
    client = Producer({**settings, "error_cb": told.append, "log_level": 0})
    assert eventually(lambda: bool(client.poll(0.05) or told), ERROR_SECONDS_MAX), "it got in, or waits"
    return told[0]
