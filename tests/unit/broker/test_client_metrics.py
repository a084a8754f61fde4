"""Push intervals and stored values: the rules of KIP-714 without sockets. The error codes are Apache Kafka's."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.broker.telemetry import client_metrics
from ottla.broker.telemetry.client_metrics import ClientMetricsManager, subscription_id
from ottla.broker.telemetry.otlp import Point

MINUTE_MS = 60_000
FACTS = {"client_id": "orders-1", "client_software_name": "librdkafka"}
SUBSCRIPTION = {"one": {"metrics": "b.,a.", "interval.ms": "1000"}}


class Stand:
    """One client, a clock and the subscriptions."""

    def __init__(self, configs: dict[str, dict[str, str]] = SUBSCRIPTION) -> None:
        self.metrics = ClientMetricsManager()
        self.configs = configs
        self.id = uuid4()
        self.now_ms = 5

    def ask(self) -> client_metrics.ClientInstance:
        return self.metrics.get_subscription(self.id, FACTS, self.configs, self.now_ms)

    def push(self, subscription: int | None = None, **changed: Any) -> client_metrics.ClientInstance:
        known = self.metrics._instances.get(self.id)
        asked = subscription if subscription is not None else known.subscription_id if known else 0
        fields = {"terminating": False, "compression_type": 0, "metrics": b"", "subscription_id": asked, **changed}
        return self.metrics.check_push(self.id, FACTS, self.configs, SimpleNamespace(**fields), 100, self.now_ms)

    def refusal_of_push(self, subscription: int | None = None, **changed: Any) -> Error:
        with pytest.raises(KafkaError) as refused:
            self.push(subscription, **changed)
        return refused.value.error

    def refusal_of_ask(self) -> Error:
        with pytest.raises(KafkaError) as refused:
            self.ask()
        return refused.value.error


def test_the_id_of_a_subscription_is_kafkas() -> None:
    client = UUID("6c4bde69-8553-4222-8940-7da746453cff")
    assert subscription_id(["b.", "a."], 1000, client) == 590585543  # the result of Apache Kafka 4.3.1


def test_a_client_gets_its_subscription() -> None:
    instance = Stand().ask()
    assert (instance.metrics, instance.interval_ms) == (("b.", "a."), 1000)


def test_without_a_matching_subscription_no_metrics_are_requested() -> None:
    instance = Stand({"other": {"metrics": "*", "match": "client_id=payments-.*"}}).ask()
    assert (instance.metrics, instance.interval_ms) == ((), 300_000)


def test_matching_subscriptions_are_combined() -> None:
    configs = {
        "one": {"metrics": "a.,b.", "interval.ms": "2000", "match": "client_id=orders-.*"},
        "two": {"metrics": "b.,c.", "interval.ms": "3000"},
        "three": {"metrics": "d.", "match": "client_id=orders-1,client_software_name=apache.*"},
    }
    instance = Stand(configs).ask()
    assert (instance.metrics, instance.interval_ms) == (("a.", "b.", "c."), 2000)
    assert Stand({**configs, "all": {"metrics": "*"}}).ask().metrics == ("*",)


def test_one_push_may_follow_each_subscription_request() -> None:
    stand = Stand()
    stand.ask()
    stand.push()
    assert stand.refusal_of_push() is Error.THROTTLING_QUOTA_EXCEEDED
    stand.now_ms += 1000
    stand.push()
    assert stand.refusal_of_ask() is Error.THROTTLING_QUOTA_EXCEEDED
    stand.now_ms += 1000
    stand.ask()


def test_a_terminating_push_is_accepted_at_any_time_but_only_once() -> None:
    stand = Stand()
    stand.ask()
    stand.push()
    stand.push(terminating=True)
    assert stand.refusal_of_push() is Error.INVALID_REQUEST
    stand.now_ms += 1000
    stand.ask()  # the client continues after all
    stand.push()


def test_after_a_subscription_change_a_client_may_request_it_at_once() -> None:
    stand = Stand()
    old = stand.ask().subscription_id
    stand.configs = {"one": {"metrics": "c.", "interval.ms": "1000"}}
    assert stand.refusal_of_push(old) is Error.UNKNOWN_SUBSCRIPTION_ID
    assert stand.ask().metrics == ("c.",)
    assert stand.refusal_of_push() is Error.THROTTLING_QUOTA_EXCEEDED  # that push was the one of this interval


def test_invalid_pushes_are_refused() -> None:
    stand = Stand()
    stand.ask()
    assert stand.refusal_of_push(compression_type=9) is Error.UNSUPPORTED_COMPRESSION_TYPE
    stand.ask()
    stand.now_ms += 1000
    assert stand.refusal_of_push(metrics=b"x" * 101) is Error.TELEMETRY_TOO_LARGE
    assert stand.refusal_of_ask() is Error.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("number", [0, 1])
def test_a_push_needs_an_id(number: int) -> None:
    stand = Stand()
    stand.id = UUID(int=number)
    assert stand.refusal_of_push() is Error.INVALID_REQUEST


def test_deltas_are_added_up_and_other_values_replaced() -> None:
    stand = Stand()
    instance = stand.ask()
    for value in (2.0, 3.0):
        stand.metrics.store_values(
            instance,
            [
                Point("sent", (), value, is_counter=True, is_delta=True),
                Point("all", (), value, is_counter=True, is_delta=False),
                Point("rate", (("topic", "a"),), value, is_counter=False, is_delta=False),
            ],
        )
    found = {sample.name: (sample.value, sample.is_counter, sample.client["client_id"]) for sample in stand.metrics}
    assert found == {
        "sent": (5.0, True, "orders-1"),
        "all": (3.0, True, "orders-1"),
        "rate": (3.0, False, "orders-1"),
    }


def test_values_that_were_never_measured_are_omitted() -> None:
    stand = Stand()
    stand.metrics.store_values(
        stand.ask(), [Point("a", (), float("nan"), False, False), Point("b", (), float("inf"), True, True)]
    )
    assert list(stand.metrics) == []


def test_values_of_one_metric_are_contiguous() -> None:
    stand = Stand()
    for _ in range(3):
        stand.id = uuid4()
        stand.metrics.store_values(stand.ask(), [Point(name, (), 1.0, True, True) for name in ("a", "b")])
    assert [sample.name for sample in stand.metrics] == ["a", "a", "a", "b", "b", "b"]


def test_a_silent_client_is_dropped_with_its_values() -> None:
    stand = Stand()
    stand.metrics.store_values(stand.ask(), [Point("a", (), 1.0, True, True)])
    stand.id, stand.now_ms = uuid4(), stand.now_ms + MINUTE_MS - 1
    stand.ask()
    assert len(stand.metrics) == 2
    stand.id, stand.now_ms = uuid4(), stand.now_ms + client_metrics.SWEEP_MS
    stand.ask()
    assert len(stand.metrics) == 2
    assert (list(stand.metrics), stand.metrics.value_count) == ([], 0)


def test_clients_and_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "CLIENT_INSTANCES_MAX", 3)
    monkeypatch.setattr(client_metrics, "VALUES_PER_CLIENT_MAX", 2)
    monkeypatch.setattr(client_metrics, "VALUES_MAX", 5)
    stand = Stand()
    for _ in range(10):
        stand.id = uuid4()
        stand.metrics.store_values(stand.ask(), [Point(f"metric-{place}", (), 1.0, True, True) for place in range(9)])
    assert len(stand.metrics) == 3
    assert stand.metrics.value_count == len(list(stand.metrics)) <= 5


def test_values_of_a_dropped_client_are_ignored() -> None:
    stand = Stand()
    instance = stand.ask()
    stand.metrics._remove(instance)
    stand.metrics.store_values(instance, [Point("a", (), 1.0, True, True)])
    assert list(stand.metrics) == []
