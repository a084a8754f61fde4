"""What settings do, as clients feel it: at the start, and changed while the broker runs.

test_limits.py tests the limits of frames, messages and topics that exist from the start.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.config_requests import BROKER, DELETE, OK, SET, TOPIC, change
from tests.conformance.peer import EARLIEST, FETCH_BY_NAME, Peer, fetch_partition, fetch_topic, fetch_topics_request
from tests.conformance.raw import Connection, ConnectionClosedError
from tests.conformance.raw_batches import CODEC_MASK, GZIP, LOG_APPEND_TIME, batch
from tests.conformance.waiting import eventually

BrokerFactory = Callable[..., Any]

API_VERSIONS = 18
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_REPLICATION_FACTOR = 10, 32, 38
MEBIBYTE = 1 << 20


@pytest.fixture
def changed(peer: Peer) -> Iterator[Callable[..., None]]:
    """`changed("log.retention.ms", "5")` sets a broker's key for all brokers until the test is over."""
    keys: list[str] = []

    def set_key(key: str, value: str) -> None:
        keys.append(key)
        assert change(peer, (BROKER, "", [(key, SET, value)])) == [OK]

    yield set_key
    assert change(peer, (BROKER, "", [(key, DELETE, None) for key in keys])) == [OK]


def produced(peer: Peer, topic: str, expected: int, records: bytes) -> None:
    """Apache Kafka's brokers see a change a moment after it was answered."""
    assert eventually(lambda: peer.produce(topic, records).error_code == expected), (
        f"produce is answered with {expected}"
    )


# ---- changed while the broker runs: existing topics follow at once


def test_the_largest_message(peer: Peer, topic: str, changed: Callable[..., None]) -> None:
    large = batch([b"x" * 3000])
    produced(peer, topic, 0, large)
    changed("message.max.bytes", "2000")
    produced(peer, topic, MESSAGE_TOO_LARGE, large)
    assert change(peer, (TOPIC, topic, [("max.message.bytes", SET, "5000")])) == [OK]
    produced(peer, topic, 0, large)


@pytest.mark.parametrize(
    ("key", "moved_ms"),
    [("log.message.timestamp.before.max.ms", -60_000), ("log.message.timestamp.after.max.ms", 60_000)],
)
def test_messages_outside_the_timestamp_limits_are_refused(
    peer: Peer, topic: str, changed: Callable[..., None], key: str, moved_ms: int
) -> None:
    moved = int(time.time() * 1000) + moved_ms
    produced(peer, topic, 0, batch([b"v"], timestamp=moved))
    changed(key, "10000")
    produced(peer, topic, INVALID_TIMESTAMP, batch([b"v"], timestamp=moved))
    produced(peer, topic, 0, batch([b"v"]))


def test_the_timestamp_type_decides_the_time_of_a_message(peer: Peer, topic: str, changed: Callable[..., None]) -> None:
    changed("log.message.timestamp.type", "LogAppendTime")
    assert eventually(lambda: last_batch(peer, topic, timestamp=5).max_timestamp > 5), "the broker's own time is stored"
    assert last_batch(peer, topic, timestamp=5).attributes & LOG_APPEND_TIME


def test_the_codec_of_stored_batches(peer: Peer, topic: str, changed: Callable[..., None]) -> None:
    assert last_batch(peer, topic).attributes & CODEC_MASK == 0
    changed("compression.type", "gzip")
    assert eventually(lambda: last_batch(peer, topic).attributes & CODEC_MASK == GZIP), "batches are compressed"


def test_no_more_replicas_must_have_a_record_than_there_are(peer: Peer, new_topic: Any) -> None:
    """min.insync.replicas above the replication factor counts as the replication factor (Kafka 4)."""
    assert peer.produce(new_topic(min_insync_replicas=2), batch([b"v"])).error_code == 0


def last_batch(peer: Peer, topic: str, timestamp: int | None = None) -> Any:
    answer = peer.produce(topic, batch([b"value" * 100], timestamp=timestamp))
    assert answer.error_code == 0
    return peer.stored_batches(topic, answer.base_offset)[-1]


# ---- logs: what is on the disk


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that looks after its logs often."""
    from tests.conftest import FOREIGN_BOOTSTRAP, Broker  # noqa: PLC0415 (pytest's own module)

    if FOREIGN_BOOTSTRAP:
        pytest.skip("looks at the files of the broker")
    often = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "100"}
    broker = Broker(tmp_path_factory.mktemp("tidy"), {**often, "log.segment.delete.delay.ms": "1500"})
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


def files(broker: Any, topic: str, suffix: str) -> list[Path]:
    return sorted((Path(broker.data_directory) / f"{topic}-0").glob(f"*{suffix}"))


def set_on(broker: Any, key: str, value: str) -> None:
    with Peer(broker.bootstrap) as peer:
        assert change(peer, (BROKER, "1", [(key, SET, value)])) == [OK]


def can_set(broker: Any, key: str, value: str) -> bool:
    try:
        set_on(broker, key, value)
    except ConnectionClosedError:
        return False
    return True


def fill(broker: Any, topic: str, batches: int = 4, **configs: object) -> None:
    with Peer(broker.bootstrap) as peer:
        if topic not in peer.topic_names():
            peer.create_topic(topic, **configs)
        for _ in range(batches):
            assert peer.produce(topic, batch([b"x" * 600_000])).error_code == 0


RETENTION = {"log.retention.bytes": "1000000", "log.retention.ms": "1"}


@pytest.mark.parametrize(("key", "value"), RETENTION.items())
def test_old_segments_go_and_their_files_a_little_later(tidy: Any, key: str, value: str) -> None:
    for each in RETENTION:
        set_on(tidy, each, "-1")  # one of them may have been set by another test
    set_on(tidy, "log.segment.bytes", str(MEBIBYTE))
    fill(tidy, key)
    assert len(files(tidy, key, ".log")) >= 4
    set_on(tidy, key, value)
    with Peer(tidy.bootstrap) as peer:
        assert eventually(lambda: peer.list_offset(key, EARLIEST).offset >= 2), "the log begins later"
    assert eventually(lambda: bool(files(tidy, key, ".deleted"))), "log.segment.delete.delay.ms keeps the files"
    assert eventually(lambda: not files(tidy, key, ".deleted")), "the files are removed"


def test_a_segment_ends_by_size_by_age_and_by_a_full_index(tidy: Any) -> None:
    set_on(tidy, "log.segment.bytes", str(2 * MEBIBYTE))
    fill(tidy, "by-size", retention_ms=-1, retention_bytes=-1)
    assert len(files(tidy, "by-size", ".log")) == 2
    set_on(tidy, "log.segment.bytes", str(100 * MEBIBYTE))
    set_on(tidy, "log.roll.ms", "200")
    fill(tidy, "by-age", 1, retention_ms=-1, retention_bytes=-1)
    time.sleep(0.3)
    fill(tidy, "by-age", 1)
    assert len(files(tidy, "by-age", ".log")) == 2
    set_on(tidy, "log.roll.ms", "604800000")
    set_on(tidy, "log.index.size.max.bytes", "16")
    set_on(tidy, "log.index.interval.bytes", "1")
    fill(tidy, "by-index", 6, retention_ms=-1, retention_bytes=-1)
    assert len(files(tidy, "by-index", ".log")) >= 2


def test_a_folder_that_is_closed_gets_no_new_partitions(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    broker = broker_factory(log_dirs=f"{first},{second}", cordoned_log_dirs=second)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("a", 4)
        assert len(list(first.glob("a-*"))) == 4
        assert change(peer, (BROKER, "1", [("cordoned.log.dirs", SET, str(first))])) == [OK]
        peer.create_topic("b", 4)
        assert len(list(second.glob("b-*"))) == 4


# ---- connections


def is_served(connection: Connection) -> bool:
    try:
        return connection.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    except (ConnectionClosedError, TimeoutError):
        return False


@pytest.fixture(scope="module")
def two_listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker with two listeners, and with limits that tests change."""
    from tests.conftest import FOREIGN_BOOTSTRAP, Broker, free_port  # noqa: PLC0415 (pytest's own module)

    if FOREIGN_BOOTSTRAP:
        pytest.skip("needs two listeners")
    broker = Broker(tmp_path_factory.mktemp("listeners"), {})
    broker.inner = f"127.0.0.1:{free_port()}"
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},INNER://{broker.inner}"
    broker.settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"
    broker.settings["listener.name.inner.max.connections"] = "3"
    broker.settings["advertised.listeners"] = "PLAINTEXT://outside.example:9999,INNER://inside.example:8888"
    broker.settings["node.id"] = broker.settings["broker.id"] = "1"
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


def test_the_limit_of_one_listener_does_not_affect_the_other(two_listeners: Any) -> None:
    with ExitStack() as stack:
        inner = [stack.enter_context(Connection(two_listeners.inner)) for _ in range(3)]
        assert all(is_served(connection) for connection in inner)
        waiting = stack.enter_context(Connection(two_listeners.inner, timeout_seconds=0.3))
        assert not is_served(waiting)
        outer = [stack.enter_context(Connection(two_listeners.bootstrap)) for _ in range(6)]
        assert all(is_served(connection) for connection in outer)
        set_on(two_listeners, "listener.name.inner.max.connections", "4")
        waiting.timeout_seconds = 5
        assert waiting.read_frame()  # the answer to the first question
        assert is_served(waiting)


@pytest.mark.parametrize(
    "key", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_new_connections_come_no_faster_than_allowed(two_listeners: Any, key: str) -> None:
    try:
        set_on(two_listeners, key, "10")
        time.sleep(1.1)  # a second's worth is saved up
        started = time.monotonic()
        with ExitStack() as stack:
            for connection in [stack.enter_context(Connection(two_listeners.bootstrap)) for _ in range(18)]:
                assert is_served(connection)
        assert 0.5 < time.monotonic() - started < 5
    finally:
        set_on(two_listeners, key, "2147483647")


def test_one_address_may_have_a_limit_of_its_own(two_listeners: Any) -> None:
    try:
        set_on(two_listeners, "max.connections.per.ip.overrides", "127.0.0.1:3,10.0.0.1:1")
        with ExitStack() as stack:
            served = [stack.enter_context(Connection(two_listeners.bootstrap)) for _ in range(3)]
            assert eventually(lambda: all(is_served(connection) for connection in served)), "three are served"
            assert not is_served(stack.enter_context(Connection(two_listeners.bootstrap)))
    finally:
        assert eventually(lambda: can_set(two_listeners, "max.connections.per.ip.overrides", "")), "all have gone"


def test_clients_get_the_address_of_their_listener(two_listeners: Any) -> None:
    for bootstrap, host, port in (
        (two_listeners.bootstrap, "outside.example", 9999),
        (two_listeners.inner, "inside.example", 8888),
    ):
        with Peer(bootstrap) as peer:
            (node,) = peer.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers
            assert (node.node_id, node.host, node.port) == (1, host, port)


# ---- requests


def test_most_bytes_of_an_answer_to_a_fetch(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(fetch_max_bytes=20_000, max_incremental_fetch_session_cache_slots=1)
    with Peer(broker.bootstrap) as peer:
        for name in ("a", "b"):
            peer.create_topic(name)
            assert peer.produce(name, batch([b"x" * 15_000])).error_code == 0
        rows = [fetch_topic(name, [fetch_partition(0, 0)]) for name in ("a", "b")]
        answer = peer.ask(fetch_topics_request(rows, max_wait_ms=0), FETCH_BY_NAME)
        sizes = [len(bytes(topic.partitions[0].records or b"")) for topic in answer.responses]
        assert sizes[0] > 15_000
        assert sum(sizes) <= 20_000
        # The first client takes the only place for a fetch session.
        sessions = [peer.ask(fetch_topics_request(rows, session_epoch=0), FETCH_BY_NAME).session_id for _ in range(2)]
        assert sessions[0] > 0
        assert sessions[1] == 0


@pytest.mark.parametrize("factor", [2, -1])
def test_more_replicas_than_brokers_are_refused(broker_factory: BrokerFactory, factor: int) -> None:
    """A topic that asks for two, or for the broker's default of two."""
    broker = broker_factory(default_replication_factor=2)
    with Peer(broker.bootstrap) as peer:
        row = CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=1, replication_factor=factor, assignments=[], configs=[]
        )
        (answer,) = peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=5000, validate_only=False), 7).topics
        assert answer.error_code == INVALID_REPLICATION_FACTOR
        assert "replication factor of 2 cannot be reached because only 1 broker(s) are registered" in (
            answer.error_message
        )


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_consumer_of_a_missing_topic_creates_it_only_where_that_is_allowed(
    broker_factory: BrokerFactory, is_allowed: bool
) -> None:
    broker = broker_factory(auto_create_topics_enable=str(is_allowed).lower(), num_partitions=2)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        consumer.assign([TopicPartition("typing-error", 0)])
        with Peer(broker.bootstrap) as peer:
            assert eventually(lambda: polled(consumer, peer, "typing-error") or not is_allowed, 3)
            consumer.poll(300)
            assert ("typing-error" in peer.topic_names()) is is_allowed
    finally:
        consumer.close()


def polled(consumer: Any, peer: Peer, topic: str) -> bool:
    consumer.poll(100)
    return topic in peer.topic_names()


def test_a_start_that_takes_too_long_is_given_up(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(start=False, server_max_startup_time_ms=0)
    broker.launch()
    assert broker.wait() == 1
    assert "server.max.startup.time.ms" in broker.log_text
    broker.assert_no_traceback()
