"""Every recipe of docs/consumers.md, run against a broker: the files in examples/consumers are what is shown there."""

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message
from examples.consumers import (
    broadcast,
    commit_on_revoke,
    commit_on_revoke_kafka_python,
    delivery,
    delivery_kafka_python,
    exactly_once,
    exactly_once_kafka_python,
    pause,
    push_and_pull,
    retries,
    workers,
)
from examples.consumers.database_offsets import DatabaseConsumer, Store
from examples.consumers.deduplicate import ID, Deduplicator
from examples.consumers.dispatcher import Dispatcher
from examples.consumers.lag import lag
from examples.consumers.positions import place_of
from examples.consumers.prefetch import PrefetchQueue
from examples.consumers.static_member import static_member
from kafka import TopicPartition
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer
from tests.conformance.recipes import (
    WAIT_SECONDS,
    Crash,
    Failing,
    Running,
    Seen,
    auto_committing,
    doubled,
    end_without_commit,
    first_poll,
    members,
    numbered,
    read_all,
    running_postgresql,
    send,
    settings,
    share,
    shares,
    value_of,
)
from tests.conformance.waiting import eventually

REFUSED = r"UNKNOWN_MEMBER|ILLEGAL_GENERATION|_STATE|MAX_POLL"
IMPATIENT = {"session_timeout_ms": 1000, "max_poll_interval_ms": 1000, "heartbeat_interval_ms": 200}
FOREIGN_BOOTSTRAP = os.environ.get("OTTLA_TEST_BOOTSTRAP", "")

# Members of these tests come and go within seconds.
pytestmark = pytest.mark.ottla(settings={"group.min.session.timeout.ms": 1000})


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker without the initial rebalance delay; the topics of the tests are created there too."""
    if FOREIGN_BOOTSTRAP:
        return FOREIGN_BOOTSTRAP
    return str(request.getfixturevalue("ottla_broker_module").bootstrap_servers)


@pytest.fixture
def new_topic(bootstrap: str) -> NewTopic:
    def create(partitions: int = 1, name: str | None = None) -> str:
        name = name or f"k-{time.time_ns()}"
        with Peer(bootstrap) as peer:
            peer.create_topic(name, partitions)
        return name

    return create


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as where:
        yield where


# ---- delivery


def test_at_most_once_loses_the_message_that_was_being_handled(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(4))
    group = settings(bootstrap)
    first = Seen(crash_at=b"2")
    with Running(lambda stop: delivery.at_most_once(group, topic, first, stop)) as run:
        assert isinstance(run.wait_end(), Crash)
    second = Seen()
    with Running(lambda stop: delivery.at_most_once(group, topic, second, stop)):
        second.wait(1)
    assert first.values + second.values == [b"0", b"1", b"3"]


def test_at_least_once_repeats_the_message_that_was_being_handled(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(4))
    group = settings(bootstrap)
    first = Seen(crash_at=b"2")
    with Running(lambda stop: delivery.at_least_once(group, topic, first, stop)) as run:
        assert isinstance(run.wait_end(), Crash)
    second = Seen()
    with Running(lambda stop: delivery.at_least_once(group, topic, second, stop)):
        second.wait(2)
    assert first.values + second.values == numbered(4)


def test_at_most_once_with_kafka_python(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(3))
    group = str(settings(bootstrap)["group.id"])
    first, second = Seen(crash_at=b"1"), Seen()
    with Running(lambda stop: delivery_kafka_python.at_most_once(bootstrap, group, topic, first, stop)) as run:
        assert isinstance(run.wait_end(), Crash)
    with Running(lambda stop: delivery_kafka_python.at_most_once(bootstrap, group, topic, second, stop)):
        second.wait(1)
    assert first.values + second.values == [b"0", b"2"]


def test_at_least_once_with_kafka_python(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(3))
    group = str(settings(bootstrap)["group.id"])
    first, second = Seen(crash_at=b"1"), Seen()
    with Running(lambda stop: delivery_kafka_python.at_least_once(bootstrap, group, topic, first, stop)) as run:
        assert isinstance(run.wait_end(), Crash)
    with Running(lambda stop: delivery_kafka_python.at_least_once(bootstrap, group, topic, second, stop)):
        second.wait(3)
    assert first.values == [b"0"]
    assert second.values == numbered(3)  # the whole poll comes again: it was committed as one


@pytest.mark.parametrize("crashes", ["after 10", "never"])
def test_exactly_once_from_topic_to_topic(bootstrap: str, new_topic: NewTopic, crashes: str) -> None:
    source, target = new_topic(2), new_topic(2)
    send(bootstrap, source, numbered(40))
    group = str(settings(bootstrap)["group.id"])
    names = (bootstrap, group, f"{group}-0", source, target)
    if crashes == "after 10":
        failing = Failing(10)
        with Running(lambda stop: exactly_once.ExactlyOnce(*names, failing).run(stop)) as run:
            assert isinstance(run.wait_end(), Crash)
    with Running(lambda stop: exactly_once.ExactlyOnce(*names, doubled).run(stop)):
        found = read_all(bootstrap, target, 40)
    assert Counter(found) == Counter(b"%d" % (2 * number) for number in range(40))


def test_exactly_once_with_kafka_python(bootstrap: str, new_topic: NewTopic) -> None:
    source, target = new_topic(2), new_topic(2)
    send(bootstrap, source, numbered(40))
    group = str(settings(bootstrap)["group.id"])
    names = (bootstrap, group, f"{group}-0", source, target)
    failing = Failing(10)
    with Running(lambda stop: exactly_once_kafka_python.exactly_once(*names, failing, stop)) as run:
        assert isinstance(run.wait_end(), Crash)
    with Running(lambda stop: exactly_once_kafka_python.exactly_once(*names, doubled, stop)):
        found = read_all(bootstrap, target, 40)
    assert Counter(found) == Counter(b"%d" % (2 * number) for number in range(40))


def test_a_younger_process_with_the_same_name_fences_the_older_one(bootstrap: str, new_topic: NewTopic) -> None:
    source, target = new_topic(1), new_topic(1)
    group = str(settings(bootstrap)["group.id"])
    names = (bootstrap, group, f"{group}-0", source, target)
    older = exactly_once.ExactlyOnce(*names, doubled)
    older.consumer.close()  # paused for so long that the group has forgotten it
    older.producer.init_transactions(WAIT_SECONDS)
    older.producer.begin_transaction()
    older.producer.produce(target, b"never seen")
    assert older.producer.flush(WAIT_SECONDS) == 0
    send(bootstrap, source, numbered(3))
    with Running(exactly_once.ExactlyOnce(*names, doubled).run):
        assert read_all(bootstrap, target, 3) == [b"0", b"2", b"4"]
    with pytest.raises(Exception, match=r"FENCED|fenced"):
        older.producer.commit_transaction(WAIT_SECONDS)


# ---- auto commit


def test_auto_commit_loses_what_was_read_and_not_handled_when_the_commit_came_first(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(3))
    group = str(settings(bootstrap)["group.id"])
    crashed = auto_committing(bootstrap, group, topic, interval_ms=100)
    assert first_poll(crashed) == numbered(3)
    time.sleep(0.2)
    crashed.poll(100)  # the next poll commits what the one before has brought, handled or not
    eventually(lambda: crashed.committed(TopicPartition(topic, 0)) == 3)
    end_without_commit(crashed)
    assert first_poll(auto_committing(bootstrap, group, topic), seconds_max=1.0) == []


def test_auto_commit_repeats_what_was_handled_when_the_crash_came_first(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(3))
    group = str(settings(bootstrap)["group.id"])
    crashed = auto_committing(bootstrap, group, topic, interval_ms=60_000)
    handled = first_poll(crashed)
    end_without_commit(crashed)
    assert first_poll(auto_committing(bootstrap, group, topic)) == handled == numbered(3)


# ---- rebalances


def test_handled_records_are_committed_before_a_partition_is_reassigned(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    group = settings(bootstrap)
    group_id = str(group["group.id"])
    for partition in range(4):
        send(bootstrap, topic, numbered(5, 10 * partition), partition)
    seen = Seen()
    first = commit_on_revoke.CommitOnRevoke(group, topic, seen)
    with Running(first.run):
        seen.wait(20)
        assert sum(lag(bootstrap, group_id, topic).values()) == 20
        second = commit_on_revoke.CommitOnRevoke(group, topic, seen)
        with Running(second.run):
            assert eventually(lambda: shares(bootstrap, group_id) == [2, 2], WAIT_SECONDS)
            assert eventually(lambda: sum(lag(bootstrap, group_id, topic).values()) <= 10, WAIT_SECONDS)
            for partition in range(4):
                send(bootstrap, topic, [b"new %d" % partition], partition)
            seen.wait(24)
    assert Counter(seen.values).most_common(1)[0][1] == 1
    assert sum(lag(bootstrap, group_id, topic).values()) == 0


def test_the_rebalance_listener_of_kafka_python_commits_too(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    group = str(settings(bootstrap)["group.id"])
    for partition in range(2):
        send(bootstrap, topic, numbered(5, 10 * partition), partition)
    seen = Seen()
    first = commit_on_revoke_kafka_python.CommitOnRevoke(bootstrap, group, topic, seen)
    first.consumer.partitions_for_topic(topic)  # else it may join before it knows the topic, and wait for minutes
    with Running(first.run):
        seen.wait(10)
        second = commit_on_revoke_kafka_python.CommitOnRevoke(bootstrap, group, topic, seen)
        second.consumer.partitions_for_topic(topic)
        with Running(second.run):
            assert eventually(lambda: shares(bootstrap, group) == [1, 1], WAIT_SECONDS)
            send(bootstrap, topic, [b"a"], 0)
            send(bootstrap, topic, [b"b"], 1)
            seen.wait(12)
    assert Counter(seen.values).most_common(1)[0][1] == 1


def test_a_paused_partition_waits_and_the_others_and_the_group_do_not(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    group = settings(bootstrap)
    send(bootstrap, topic, [b"busy", b"after"], 0)
    send(bootstrap, topic, numbered(5), 1)
    seen, refused = Seen(), Seen()

    def handle(message: Message) -> None:
        if value_of(message) == b"busy" and not refused.values:
            refused(message)
            raise pause.NotNow(1.0)
        seen(message)

    with Running(lambda stop: pause.consume_with_breaks(group, topic, handle, stop)):
        assert sorted(seen.wait(5)) == numbered(5)  # the other partition goes on
        joined = members(bootstrap, str(group["group.id"]))
        assert seen.wait(7)[-2:] == [b"busy", b"after"]
        assert members(bootstrap, str(group["group.id"])) == joined


def test_a_static_member_that_comes_back_keeps_its_partitions_without_rebalance(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    group = str(settings(bootstrap)["group.id"])
    changes: list[str] = []
    stays = static_member(bootstrap, group, "stays")
    stays.subscribe([topic], on_assign=lambda *_: changes.append("+"), on_revoke=lambda *_: changes.append("-"))
    leaves = static_member(bootstrap, group, "leaves")
    leaves.subscribe([topic])
    assert eventually(lambda: share(stays) == share(leaves) == 1, WAIT_SECONDS)
    had = [place.partition for place in leaves.assignment()]
    known = list(changes)
    leaves.close()
    again = static_member(bootstrap, group, "leaves")
    again.subscribe([topic])
    assert eventually(lambda: share(again) == 1, WAIT_SECONDS)
    assert [place.partition for place in again.assignment()] == had
    assert share(stays) == 1
    assert changes == known
    for consumer in (stays, again):
        consumer.close()


def test_a_member_that_works_too_long_loses_its_partition_and_its_commit(bootstrap: str, topic: str) -> None:
    """A slow handler is no dead process, but the group cannot tell: it assigns the partition to a member that polls."""
    send(bootstrap, topic, numbered(2))
    group = settings(bootstrap, **IMPATIENT)
    group |= delivery.BY_HAND
    slow, other = Consumer(group), Consumer(group)
    slow.subscribe([topic])
    message = slow.poll(WAIT_SECONDS)
    assert message is not None
    time.sleep(1.2)  # the work
    other.subscribe([topic])
    taken = other.poll(WAIT_SECONDS)
    assert taken is not None
    assert value_of(taken) == value_of(message) == b"0"
    with pytest.raises(Exception, match=REFUSED):
        slow.commit(message=message, asynchronous=False)
    for consumer in (slow, other):
        consumer.close()


# ---- many at once, ahead of time, without a loop


def test_workers_keep_the_order_of_partitions_and_commit_what_is_finished(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    group = settings(bootstrap, **IMPATIENT)
    for partition in range(4):
        send(bootstrap, topic, numbered(10, 100 * partition), partition)
    lists: dict[int, list[int]] = {partition: [] for partition in range(4)}
    threads: set[int] = set()

    def slowly(message: Message) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.15)
        lists[place_of(message).partition].append(int(value_of(message)))

    with Running(lambda stop: workers.consume_with_workers(group, topic, slowly, 4, stop)):
        assert eventually(lambda: sum(map(len, lists.values())) == 40, WAIT_SECONDS)
    assert len(threads) == 4
    assert all(seen == list(range(100 * partition, 100 * partition + 10)) for partition, seen in lists.items())
    assert lag(bootstrap, str(group["group.id"]), topic) == dict.fromkeys(range(4), 0)


def test_a_prefetch_queue_keeps_its_size_and_its_member_stays_in_the_group(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(50))
    group = settings(bootstrap, **IMPATIENT, auto_offset_reset="earliest")
    with PrefetchQueue(group, topic, size=10, every_s=0.02) as queue:
        first = queue.get(WAIT_SECONDS)
        assert first is not None
        assert eventually(lambda: len(queue) == 10)
        time.sleep(1.3)  # longer than max.poll.interval.ms
        assert len(queue) == 10
        others = [queue.get(WAIT_SECONDS) for _ in range(49)]
        assert [value_of(message) for message in (first, *others)] == numbered(50)
        assert queue.get(0.1) is None


def test_a_dispatcher_calls_functions_by_topic(bootstrap: str, new_topic: NewTopic) -> None:
    orders, mails = new_topic(2), new_topic(1)
    dispatcher = Dispatcher(settings(bootstrap))
    booked, counted, sent = Seen(), Seen(), Seen()
    dispatcher.on(orders)(booked)
    dispatcher.on(orders)(counted)
    dispatcher.on(mails)(sent)
    dispatcher.start()
    send(bootstrap, orders, numbered(5))
    send(bootstrap, mails, [b"hello"])
    assert sent.wait(1) == [b"hello"]
    assert sorted(booked.wait(5)) == sorted(counted.wait(5)) == numbered(5)
    dispatcher.close()


def test_retries_come_later_and_later_and_end_in_the_dead_topic(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    policy = retries.Policy(limit=2, first_s=0.2, factor=2.0)
    for name in (*policy.topics(topic, is_high=False), *policy.topics(topic, is_high=True), f"{topic}.dead"):
        new_topic(1, name)
    times: list[float] = []
    fine = Seen()

    def handle(message: Message) -> None:
        if value_of(message) == b"bad":
            times.append(time.time())
            raise ValueError("bad value")
        fine(message)

    send(bootstrap, topic, [b"bad", *numbered(3)])
    with Running(lambda stop: retries.RetryingConsumer(settings(bootstrap), topic, handle, policy).run(stop)):
        assert read_all(bootstrap, f"{topic}.dead", 1) == [b"bad"]
    assert fine.values == numbered(3)  # nothing waited behind the bad one
    assert len(times) == 3
    assert times[1] - times[0] >= 0.2
    assert times[2] - times[1] >= 0.4


def test_important_messages_are_tried_again_before_all_others(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    policy = retries.Policy(limit=1, first_s=0.5)
    for name in (*policy.topics(topic, is_high=False), *policy.topics(topic, is_high=True)):
        new_topic(1, name)
    failed, done = Seen(), Seen()

    def once_more(message: Message) -> None:
        if retries.attempt_of(message) == 0:
            failed(message)
            raise ValueError("the first attempt always fails")
        time.sleep(0.1)
        done(message)

    send(bootstrap, topic, numbered(20))
    send(bootstrap, topic, [b"important"], headers={retries.PRIORITY: retries.HIGH})
    with Running(lambda stop: retries.RetryingConsumer(settings(bootstrap), topic, once_more, policy).run(stop)):
        done.wait(21)
    assert failed.values == [*numbered(20), b"important"]
    assert done.values.index(b"important") < 20


# ---- results and positions in a database


def test_sqlite_holds_every_result_once_whatever_crashes(bootstrap: str, new_topic: NewTopic, tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def open_store() -> Store:
        return Store(sqlite3.connect(path, check_same_thread=False), "?")

    check_database(bootstrap, new_topic(2), open_store)


def test_postgresql_holds_every_result_once_whatever_crashes(
    bootstrap: str, new_topic: NewTopic, postgresql: str
) -> None:
    psycopg = pytest.importorskip("psycopg")
    check_database(bootstrap, new_topic(2), lambda: Store(psycopg.connect(postgresql), "%s"))


def check_database(bootstrap: str, topic: str, open_store: Callable[[], Store]) -> None:
    """The process dies at the worst places: between result and position, and right after the transaction."""
    send(bootstrap, topic, numbered(30))
    group = settings(bootstrap)
    store = open_store()
    store.execute("CREATE TABLE results (value TEXT)")
    store.database.commit()
    for crash_at in (5, 9, 14):
        failing = Failing(crash_at)

        def handle(store: Store, message: Message, failing: Failing = failing) -> None:
            store.execute("INSERT INTO results VALUES (?)", value_of(message).decode())
            failing(message)

        with Running(lambda stop: DatabaseConsumer(group, topic, open_store(), handle).run(stop)) as run:
            assert isinstance(run.wait_end(), Crash)

    def store_value(store: Store, message: Message) -> None:
        store.execute("INSERT INTO results VALUES (?)", value_of(message).decode())

    with Running(lambda stop: DatabaseConsumer(group, topic, open_store(), store_value).run(stop)):
        assert eventually(lambda: stored(store) >= 30, WAIT_SECONDS)
    rows = [row[0] for row in store.execute("SELECT value FROM results").fetchall()]
    assert sorted(rows, key=int) == [str(number) for number in range(30)]
    zombie = DatabaseConsumer(group, topic, store, store_value)  # thinks that it still owns the first message
    message = next(push_and_pull.read_from(bootstrap, topic, 0, 0))
    zombie.take(message)
    zombie.consumer.close()
    assert stored(store) == 30


def stored(store: Store) -> int:
    count = int(store.execute("SELECT count(*) FROM results").fetchone()[0])
    store.database.commit()
    return count


def test_events_that_were_sent_twice_are_handled_once(bootstrap: str, topic: str, tmp_path: Path) -> None:
    for number in (0, 1, 1, 2, 0):
        send(bootstrap, topic, [b"%d" % number], headers={ID: b"event-%d" % number})
    database = sqlite3.connect(tmp_path / "seen.db", check_same_thread=False)
    deduplicator = Deduplicator(database, keep_ms=1000)
    seen, came = Seen(), Seen()

    def handle(message: Message) -> None:
        with database:
            if deduplicator.is_first(message):
                seen(message)
        came(message)

    with Running(lambda stop: delivery.at_least_once(settings(bootstrap), topic, handle, stop)):
        came.wait(5)
    assert seen.values == numbered(3)
    assert deduplicator.forget_old(round(time.time() * 1000) + 60_000) == 3


# ---- assignment of partitions


def test_a_group_shares_messages_and_every_subscriber_of_a_broadcast_gets_all(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, numbered(10))
    handlers = {name: Seen() for name in ("ann", "bob")}
    shared = Seen()
    work = str(settings(bootstrap)["group.id"])

    def run(stop: threading.Event, name: str) -> None:
        for message in broadcast.broadcast(bootstrap, topic, stop, f"{topic}-{name}"):
            handlers[name](message)

    def share_work(stop: threading.Event) -> None:
        for message in broadcast.work_queue(bootstrap, topic, stop, work):
            shared(message)

    with (
        Running(lambda stop: run(stop, "ann")),
        Running(lambda stop: run(stop, "bob")),
        Running(share_work),
        Running(share_work),
    ):
        assert sorted(shared.wait(10), key=int) == numbered(10)
        for seen in handlers.values():
            assert sorted(seen.wait(10), key=int) == numbered(10)


def test_push_mode_follows_new_records_and_pull_mode_starts_at_the_given_offset(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, numbered(5))
    seen = Seen()
    with Running(lambda stop: push_and_pull.follow_newest(bootstrap, topic, seen, stop)):
        for _ in range(round(WAIT_SECONDS)):  # until it follows: what was sent before is none of its business
            send(bootstrap, topic, [b"news"])
            if eventually(lambda: bool(seen.values), 1.0):
                break
        assert set(seen.values) == {b"news"}
    read = [value_of(message) for message in push_and_pull.read_from(bootstrap, topic, 0, 3)]
    assert read[:3] == [b"3", b"4", b"news"]


def test_a_slow_consumer_builds_up_a_backlog_that_its_lag_shows(bootstrap: str, topic: str) -> None:
    group = settings(bootstrap)
    name = str(group["group.id"])
    send(bootstrap, topic, numbered(20))
    seen = Seen()

    def slowly(message: Message) -> None:
        time.sleep(0.02)
        seen(message)

    with Running(lambda stop: delivery.at_least_once(group, topic, slowly, stop)):
        seen.wait(5)
        behind = lag(bootstrap, name, topic)[0]
        assert 0 < behind < 20
        seen.wait(20)
    assert lag(bootstrap, name, topic) == {0: 0}
