"""What a test broker refuses before it starts anything."""

import pytest

from ottla.testing.broker import Broker, check_names, checked_quotas
from ottla.testing.child import BrokerError


def test_a_misspelt_setting_is_an_error_that_names_the_right_one() -> None:
    with pytest.raises(BrokerError, match=r"called num.partitoins: did you mean num.partitions\?"):
        check_names({"num.partitoins": 3})


def test_keys_of_kafka_old_and_new_and_our_own_are_taken() -> None:
    check_names({"num.partitions": 3, "ottla.metrics.port": 0, "listener.name.plaintext.max.connections": 5})
    check_names({"zookeeper.session.timeout.ms": 1, "port": 9092, "process.roles": "broker"})


def test_a_misspelt_quota_is_an_error_before_anything_is_started() -> None:
    with pytest.raises(BrokerError, match=r"quotas: .* did you mean producer_byte_rate\?"):
        Broker(quotas=[{"client": "greedy", "producer_byte_rat": 1000}])
    assert checked_quotas([{"user-defaults": True, "request_percentage": 50}]) == [
        ({"user": None}, {"request_percentage": 50.0})
    ]
