"""Advice that is slow to test: brokers that recompress, fetches, members, clients (see also conformance)."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.advised import Member, advise, beside, produce
from tests.conformance.peer import Peer
from tests.conformance.test_client_metrics import subscribe
from tests.conformance.waiting import eventually

from ottla.operations.metric_readings import Rates, Reading, read_metrics

pytestmark = pytest.mark.faults

TOPIC = "orders"
SECONDS = 3


@pytest.fixture
def broker(broker_factory: Callable[..., Any]) -> Any:
    return broker_factory(ottla_metrics_port=0, group_initial_rebalance_delay_ms=0)


def url(broker: Any) -> str:
    return re.findall(r"metrics on (http://\S+)/metrics", broker.log_text)[-1]


def reading(broker: Any) -> Reading:
    return read_metrics(url(broker))


def create(broker: Any, partitions: int = 1, **configs: object) -> None:
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, partitions, **configs)


def advised(broker: Any, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = advise(broker.bootstrap, *words, "--url", url(broker), "--seconds", str(SECONDS))["advice"]
    return found


@contextmanager
def writing(broker: Any, rate: float, **settings: Any) -> Iterator[None]:
    given = {name.replace("_", "."): value for name, value in settings.items()}

    def write(over: threading.Event) -> None:
        while not over.is_set():
            produce(broker.bootstrap, TOPIC, int(rate), given, rate=rate)

    with beside(write):
        time.sleep(1.0)
        yield


def rates_of(broker: Any, seconds: float = SECONDS) -> Rates:
    before = reading(broker)
    time.sleep(seconds)
    return Rates(before, reading(broker))


@pytest.mark.parametrize("batch_size", [10_000, 900_000], ids=["on the loop", "in a thread"])
def test_producers_that_compress_as_the_topic_does_take_work_from_the_broker(broker: Any, batch_size: int) -> None:
    create(broker, compression_type="gzip")

    def cost(codec: str) -> tuple[float, dict[str, Any]]:
        """CPU of the broker a record, in µs."""
        with writing(broker, 20_000, compression_type=codec, linger_ms=50, batch_size=batch_size):
            said = advised(broker, "--topic", TOPIC)
        before = reading(broker)
        produce(broker.bootstrap, TOPIC, 60_000, {"compression.type": codec, "linger.ms": 50, "batch.size": batch_size})
        now = reading(broker)
        spent = now.value_or_zero("process_cpu_seconds_total") - before.value_or_zero("process_cpu_seconds_total")
        return spent * 1e6 / 60_000, said

    before, said = cost("none")
    assert "gzip" in said["recompressed"]["observation"]
    after, nothing = cost("gzip")
    assert "recompressed" not in nothing
    least = said["recompressed"]["estimates"]["broker_us_per_record"]  # bytes that do not come cost nothing, either
    assert 0.8 * least <= before - after <= 3 * least


def test_larger_answers_need_fewer_reads(broker: Any) -> None:
    create(broker)
    reads = "kafka_server_brokertopicmetrics_totalfetchrequests_total"
    with writing(broker, 400, linger_ms=0):
        with Member(broker.bootstrap, TOPIC, group_id="before"):
            said = advised(broker, "--topic", TOPIC)["tiny-fetches"]
        settings = dict(re.findall(r"(fetch[a-z.]+)=(\d+)", said["change"]))
        with Member(broker.bootstrap, TOPIC, group_id="after", **{key: int(value) for key, value in settings.items()}):
            time.sleep(2.0)
            rate = rates_of(broker).total_rate(reads, topic=TOPIC)
    assert rate is not None
    assert rate <= 1.2 * said["estimates"]["fetches_per_s"]


def test_longer_waits_need_fewer_reads_of_a_quiet_topic(broker: Any) -> None:
    create(broker)
    reads = "kafka_server_brokertopicmetrics_totalfetchrequests_total"
    with Member(broker.bootstrap, TOPIC, group_id="before", fetch_wait_max_ms=10):
        time.sleep(1.0)
        said = advised(broker, "--topic", TOPIC)["empty-fetches"]
    with Member(broker.bootstrap, TOPIC, group_id="after"):
        time.sleep(2.0)
        rate = rates_of(broker).total_rate(reads, topic=TOPIC)
    assert rate is not None
    assert rate <= 1.2 * said["estimates"]["fetches_per_s"]


def lag(broker: Any) -> int:
    return int(advise(broker.bootstrap, "--group", "billing")["figures"]["lag"].replace(",", "").replace("?", "0"))


GROUP = {"group_id": "billing", "auto_commit_interval_ms": 500, "session_timeout_ms": 6000}


def test_more_members_drain_the_lag(broker: Any) -> None:
    create(broker, 8)
    with ExitStack() as stack:
        stack.enter_context(writing(broker, 300, linger_ms=5))
        for _ in range(2):
            stack.enter_context(Member(broker.bootstrap, TOPIC, 0.01, **GROUP))
        found: dict[str, Any] = {}

        def is_told() -> bool:
            found.update(advise(broker.bootstrap, "--group", "billing")["advice"])
            return "too-few-members" in found

        time.sleep(6.0)
        assert eventually(is_told, 20)
        said = found["too-few-members"]["estimates"]
        assert 3 <= said["members"] <= 8
        for _ in range(int(said["members"]) - 2):
            stack.enter_context(Member(broker.bootstrap, TOPIC, 0.01, **GROUP))
        behind = lag(broker)
        assert behind > 0
        assert eventually(lambda: lag(broker) < behind / 4, 3 * said["drained_s"] + 20)


def test_a_slow_member_is_named_and_replacing_it_drains_its_lag(broker: Any) -> None:
    create(broker, 2)
    with ExitStack() as stack:
        stack.enter_context(writing(broker, 200, linger_ms=0, partitioner="random", sticky_partitioning_linger_ms=0))
        stack.enter_context(Member(broker.bootstrap, TOPIC, 0.001, client_id="quick", **GROUP))
        with Member(broker.bootstrap, TOPIC, 0.05, client_id="sluggish", **GROUP):
            found: dict[str, Any] = {}

            def is_told() -> bool:
                found.clear()
                found.update(advise(broker.bootstrap, "--group", "billing")["advice"])
                return "slow-member" in found

            time.sleep(5.0)
            assert eventually(is_told, 60)
            assert "sluggish" in found["slow-member"]["observation"]
            behind = lag(broker)
        stack.enter_context(Member(broker.bootstrap, TOPIC, 0.001, client_id="replaced", **GROUP))
        assert eventually(lambda: lag(broker) < behind / 4, 30)


def test_one_producer_instead_of_many_opens_no_connections(broker: Any) -> None:
    create(broker)
    subscribe(broker.bootstrap, "all", interval_ms="1000", metrics="*")
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "app", "log_level": 0}
    opened = "kafka_server_socket_server_metrics_connection_creation_total"

    def each_anew(over: threading.Event) -> None:
        while not over.is_set():
            producer = Producer(settings)
            producer.produce(TOPIC, b"x")
            producer.flush(10)
            time.sleep(0.1)

    with beside(each_anew):
        time.sleep(1.0)
        said = advised(broker, "--client", "app")["short-lives"]
        before = rates_of(broker).total_rate(opened) or 0.0
    assert said["estimates"]["new_clients_per_s"] == 0
    kept = Producer(settings)

    def keep(over: threading.Event) -> None:
        while not over.is_set():
            kept.produce(TOPIC, b"x")
            kept.flush(10)
            time.sleep(0.1)

    with beside(keep):
        time.sleep(3.0)
        after = rates_of(broker).total_rate(opened) or 0.0
        assert "short-lives" not in advised(broker, "--client", "app")
    assert before > 5
    assert after < 1


def test_a_busy_application_is_distinguished_from_slow_fetches(broker: Any) -> None:
    create(broker, 4)
    subscribe(broker.bootstrap, "all", interval_ms="1000", metrics="*")
    produce(broker.bootstrap, TOPIC, 20_000, {"linger.ms": 50})
    with Member(broker.bootstrap, TOPIC, 0.01, client_id="app", **GROUP) as member:
        assert eventually(lambda: member.read > 10, 20)
        time.sleep(3.0)
        assert "busy-application" in advised(broker, "--client", "app")
    with Member(broker.bootstrap, TOPIC, 0.0, client_id="light", **GROUP) as member:
        assert eventually(lambda: member.read > 10, 20)
        time.sleep(4.0)
        assert "busy-application" not in advised(broker, "--client", "light")
