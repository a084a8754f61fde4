"""`ottla advise`: advice that is followed has the promised effect. Measured by the content of logs, not by time."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.conformance.advised import Member, advise, produce
from tests.conformance.conftest import ALL_RIGHTS, NewTopic
from tests.conformance.in_process import run_here
from tests.conformance.waiting import eventually

from ottla.client.client import Client
from ottla.operations.advice.group_samples import recent_commits
from ottla.operations.advice.topic_rules import TopicFacts
from ottla.operations.advice.topic_samples import collect_topic_facts


def look(bootstrap: str, topic: str) -> TopicFacts:
    with Client(bootstrap) as client:
        return collect_topic_facts(client, topic)


def test_longer_batches_and_compression(bootstrap: str, new_topic: NewTopic) -> None:
    before, after = new_topic(), new_topic()
    produce(bootstrap, before, 500, {"linger.ms": 0}, rate=400)
    advice = advise(bootstrap, "--topic", before)["advice"]
    said, packed = advice["tiny-batches"]["estimates"], advice["uncompressed"]["estimates"]
    produce(bootstrap, after, 500, {"linger.ms": said["linger_ms"], "compression.type": "zstd"}, rate=400)
    was, now = look(bootstrap, before), look(bootstrap, after)
    assert now.records / len(now.batches) == pytest.approx(said["records_per_batch"], rel=0.5)
    assert 1 - now.stored_bytes / was.stored_bytes == pytest.approx(packed["saved_zstd"], abs=0.12)
    assert "tiny-batches" not in advise(bootstrap, "--topic", after)["advice"]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression_alone_saves_what_was_said(bootstrap: str, new_topic: NewTopic, codec: str) -> None:
    before, after = new_topic(), new_topic()
    produce(bootstrap, before, 3000, {"linger.ms": 200, "batch.size": 30_000})
    advice = advise(bootstrap, "--topic", before)["advice"]
    assert list(advice) == ["uncompressed"]
    produce(bootstrap, after, 3000, {"linger.ms": 200, "batch.size": 30_000, "compression.type": codec})
    saved = 1 - look(bootstrap, after).stored_bytes / look(bootstrap, before).stored_bytes
    assert saved == pytest.approx(advice["uncompressed"]["estimates"][f"saved_{codec}"], abs=0.05)
    assert not advise(bootstrap, "--topic", after)["advice"]


def test_finer_keys_even_out_partitions(bootstrap: str, new_topic: NewTopic) -> None:
    before, after = new_topic(partitions=4), new_topic(partitions=4)
    settings = {"linger.ms": 50, "compression.type": "lz4"}
    produce(bootstrap, before, 4000, settings, key=lambda number: b"hot" if number % 3 else b"%d" % number)
    said = advise(bootstrap, "--topic", before)["advice"]["hot-partition"]
    assert "'hot'" in said["observation"]
    produce(bootstrap, after, 4000, settings, key=lambda number: b"hot-%d" % number if number % 3 else b"%d" % number)
    assert max(look(bootstrap, after).shares.values()) == pytest.approx(said["estimates"]["share"], abs=0.06)
    assert not advise(bootstrap, "--topic", after)["advice"]


def test_a_higher_limit_takes_larger_records(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=100_000)

    def send(size: int) -> None:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1_000_000, "log_level": 0})
        producer.produce(topic, os.urandom(size), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
        if errors[0] is not None:
            raise KafkaException(errors[0])

    send(90_000)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send(120_000)
    said = advise(bootstrap, "--topic", topic)["advice"]["near-the-limit"]
    command = said["change"].partition(",")[0].split()
    assert run_here("ottla", command[1], "--bootstrap-server", bootstrap, *command[2:]).code == 0
    assert eventually(lambda: look(bootstrap, topic).settings["max.message.bytes"] == command[-1].partition("=")[2])
    send(120_000)
    assert not advise(bootstrap, "--topic", topic)["advice"]


def test_more_partitions_give_idle_members_work(bootstrap: str, new_topic: NewTopic, coordinator: None) -> None:
    topic = new_topic()
    produce(bootstrap, topic, 100, {"compression.type": "lz4"})
    with Member(bootstrap, topic, group_id=topic), Member(bootstrap, topic, group_id=topic):
        found: dict[str, Any] = {}

        def is_told() -> bool:
            if _exists(bootstrap, topic):
                found.update(advise(bootstrap, "--group", topic)["advice"])
            return "idle-members" in found

        assert eventually(is_told, 20)
        said = found["idle-members"]
        command = said["change"].partition(" (")[0].split()
        assert command[-1] == "2"
        assert run_here("ottla", command[1], "--bootstrap-server", bootstrap, *command[2:]).code == 0
        assert eventually(
            lambda: advise(bootstrap, "--group", topic)["figures"]["members"] == "2, 0 of them without partitions", 20
        )


def _exists(bootstrap: str, group: str) -> bool:
    return run_here("ottla", "advise", "--bootstrap-server", bootstrap, "--group", group).code == 0


def test_fewer_commits(bootstrap: str, new_topic: NewTopic, coordinator: None) -> None:
    topic = new_topic()
    produce(bootstrap, topic, 5000, {"linger.ms": 50, "compression.type": "lz4"})
    settings = {"group_id": topic, "enable_auto_commit": False, "is_committing_each": True}
    with Member(bootstrap, topic, 0.002, **settings) as member:
        assert eventually(lambda: member.read >= 300, 20)
        time.sleep(1.0)
        said = advise(bootstrap, "--group", topic)["advice"]["commits"]["estimates"]
    began_ms = int(time.time() * 1000)
    with Member(bootstrap, topic, 0.002, group_id=topic, auto_commit_interval_ms=5000) as member:
        assert eventually(lambda: member.read >= 500, 20)
    with Client(bootstrap) as client:
        commits = sum(1 for _ in recent_commits(client, topic, began_ms))
    seconds = time.time() - began_ms / 1000
    assert commits <= 1 + said["commits_per_s"] * seconds  # the last one when it leaves


# ---- nothing to advise, and what cannot be asked


def test_unknown_topics_and_groups_are_refused_in_one_sentence(
    bootstrap: str, topic_name: str, coordinator: None
) -> None:
    for words in (("--topic", topic_name), ("--group", topic_name), ("--topic", "a/b")):
        result = run_here("ottla", "advise", "--bootstrap-server", bootstrap, *words)
        assert (result.code, result.err.count("\n")) == (1, 1), result
    assert run_here("ottla", "advise", "--bootstrap-server", bootstrap).code == 2
    result = run_here("ottla", "advise", "--bootstrap-server", bootstrap, "--client", "nobody")
    assert result.code == 1
    assert "--url" in result.err


def test_an_empty_topic_gets_no_advice(bootstrap: str, topic: str) -> None:
    found = advise(bootstrap, "--topic", topic)
    assert not found["advice"]
    assert found["figures"]["offsets in the log"] == "0"


def test_no_compression_is_advised_for_encrypted_records(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 20_000})
    for _ in range(1000):
        producer.produce(topic, os.urandom(300))
    assert producer.flush(20) == 0
    assert not advise(bootstrap, "--topic", topic)["advice"]


def test_small_transactions_are_reported_and_not_taken_for_tiny_batches(
    bootstrap: str, topic: str, coordinator: None
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions(20)
    for number in range(30):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number * 20)
        producer.commit_transaction(20)
    found = advise(bootstrap, "--topic", topic)
    assert not found["advice"]
    assert found["figures"]["records a transaction"] == "1.0"


def test_only_some_of_many_partitions_are_read(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=200)
    produce(bootstrap, topic, 2000, {"linger.ms": 50, "compression.type": "lz4"}, key=lambda number: b"%d" % number)
    assert advise(bootstrap, "--topic", topic)["figures"]["sample"].endswith("of 16 partitions")


@pytest.mark.needs_ottla
def test_missing_rights_are_reported(broker_factory: Callable[..., Any]) -> None:
    broker = broker_factory(**{**ALL_RIGHTS, "super.users": "User:admin"})
    for words in (("--topic", "orders"), ("--group", "billing")):
        result = run_here("ottla", "advise", "--bootstrap-server", broker.bootstrap, *words)
        assert (result.code, result.err.count("\n")) == (1, 1), result
        assert "authoriz" in result.err.lower()
