"""I1, I2, I3: answers get lost after the append. An idempotent producer retries and no record is stored twice."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually
from tests.faults.history import History, violations
from tests.faults.loads import LIBRDKAFKA, read_everything
from tests.faults.proxy import LossyProxy

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
PLACES = [("once", partition) for partition in range(3)]
REMEMBERED = 5
BrokerFactory = Callable[..., Any]


class Sender:
    """librdkafka with five requests in flight, behind the proxy."""

    def __init__(self, bootstrap: str) -> None:
        self.history = History()
        self.history.add_producer("sender", is_idempotent=True)
        self.number = 0
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 5}
        self.producer = Producer({**settings, **LIBRDKAFKA, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20})

    def send(self, count: int) -> None:
        for _ in range(count):
            topic, partition = PLACES[self.number % len(PLACES)]
            value = b"sender:%d:" % self.number
            self.producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
            self.number += 1
        self.producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.history.complain(f"{message.value()} was given up: {error}")
        else:
            self.history.acknowledge((message.topic(), message.partition()), message.value(), message.offset())

    def check(self, bootstrap: str) -> None:
        left = self.producer.flush(60)
        assert left == 0, f"{left} records were never acknowledged"
        found = violations(self.history, read_everything(bootstrap, PLACES))
        assert not found, found
        assert self.history.acknowledged_count == self.number


def lose_answers(broker_factory: BrokerFactory, losses: int, restart: Callable[[Any], None] | None, seed: int) -> None:
    with LossyProxy(seed, losses_max=losses, loss_rate=0.3) as proxy:
        broker = broker_factory(
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}", auto_create_topics_enable=True
        )
        proxy.target = ("127.0.0.1", broker.port)
        with Peer(broker.bootstrap) as peer:
            peer.create_topic("once", len(PLACES))
        sender = Sender(f"127.0.0.1:{proxy.port}")
        deadline = time.monotonic() + losses * 0.5 + 20
        restarts = 0
        while proxy.losses < losses:
            assert time.monotonic() < deadline, f"{proxy.losses} of {losses} answers lost so far"
            sender.send(10)
            time.sleep(0.005)
            if restart is not None and proxy.losses // 20 > restarts:
                restart(broker)
                restarts += 1
        sender.check(f"127.0.0.1:{proxy.port}")
        broker.assert_no_traceback()


def kill_and_start(broker: Any) -> None:
    broker.kill9()
    broker.start()


def test_lost_answers_double_nothing(broker_factory: BrokerFactory) -> None:
    lose_answers(broker_factory, losses=40, restart=None, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2))
def test_many_lost_answers_double_nothing(broker_factory: BrokerFactory, seed: int) -> None:
    lose_answers(broker_factory, losses=500, restart=None, seed=seed)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2))
def test_lost_answers_and_kills_double_nothing(broker_factory: BrokerFactory, seed: int) -> None:
    lose_answers(broker_factory, losses=200, restart=kill_and_start, seed=seed)


@pytest.mark.parametrize("way", ["running", "kill9", pytest.param("stop", marks=pytest.mark.faults)])
def test_the_last_five_batches_are_known_again(broker_factory: BrokerFactory, way: str) -> None:
    """I3: a repeated batch is answered with the place of the first; an older one is refused; none is stored again.

    After an orderly stop Kafka's snapshot holds only the newest batch of each producer: older ones are refused then.
    """
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("window")
        producer_id = peer.new_producer_id()
        sent = [
            batch([b"%d" % number], producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number in range(12)
        ]
        for number, data in enumerate(sent[:10]):
            assert peer.produce("window", data).base_offset == number
    if way != "running":
        getattr(broker, way)()
        broker.start()
    with Peer(broker.bootstrap) as peer:
        known = 1 if way == "stop" else REMEMBERED
        for number in range(10):
            answer = peer.produce("window", sent[number])
            if number >= 10 - known:
                assert (answer.error_code, answer.base_offset) == (0, number)
            else:
                assert answer.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER, number
        assert peer.produce("window", sent[11]).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap"
        assert peer.produce("window", sent[10]).base_offset == 10
        assert peer.end_offset("window") == 11


@pytest.mark.faults
def test_batches_before_a_roll_are_known_again_after_a_kill(broker_factory: BrokerFactory) -> None:
    """A snapshot holds one batch of each producer; one that is still in flight may be older than that."""
    broker = broker_factory(log_initial_task_delay_ms=0, log_flush_offset_checkpoint_interval_ms=20)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("rolled", internal_segment_bytes=10_000, flush_ms=10)
        producer_id = peer.new_producer_id()
        sent = [
            batch([b"%d" % number], producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number in range(REMEMBERED)
        ]
        for data in sent:
            assert peer.produce("rolled", data).error_code == 0
        for _ in range(15):
            assert peer.produce("rolled", batch([b"x" * 1000])).error_code == 0
        checkpoint = broker.data_directory / "recovery-point-offset-checkpoint"
        assert eventually(lambda: checkpoint.exists() and "rolled 0 20" in checkpoint.read_text())
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        answers = [peer.produce("rolled", data) for data in sent]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n) for n in range(REMEMBERED)]
