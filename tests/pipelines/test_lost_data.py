"""P2: records and topics that disappear before they are read, new partitions, mismatching checkpoints."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce, read_all

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in", fail_on_data_loss: true}
steps:
  - parse: {format: json, schema: {n: long}}
to:
  - {topic: "{name}-out"}
  - {sqlite: rows.db, table: rows}
"""
WINDOWS = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {n: long}}
  - derive: {at: "timestamp_seconds(n)"}
  - watermark: {time: at, delay: 1 second}
  - window: {size: 10 seconds, count: rows}
to: {sqlite: rows.db, table: counts}
"""


def fill(command: Command, first: int, after: int, partition: int = -1) -> None:  # noqa: F811
    produce(command.bootstrap, f"{command.name}-in", [{"n": n} for n in range(first, after)], partition)


def numbers(command: Command) -> list[int]:  # noqa: F811
    """The topic and the table hold the same; the numbers."""
    found = sorted(message.json["n"] for message in read_all(command.bootstrap, f"{command.name}-out"))
    with sqlite3.connect(command.folder / "rows.db") as database:
        assert sorted(n for (n,) in database.execute("SELECT n FROM rows")) == found
    return found


def admin_of(command: Command) -> AdminClient:  # noqa: F811
    return AdminClient({"bootstrap.servers": command.bootstrap})


def begin(command: Command) -> None:  # noqa: F811
    """Ten records are read and written."""
    command.write(FILE)
    command.make_topic()
    fill(command, 0, 10)
    assert command.run().code == 0
    assert numbers(command) == list(range(10))


def lose_the_next_ten(command: Command) -> None:  # noqa: F811
    fill(command, 10, 25)
    admin = admin_of(command)
    for answer in admin.delete_records([TopicPartition(f"{command.name}-in", 0, 20)]).values():
        answer.result()


def make_the_topic_anew(command: Command, count: int = 5) -> None:  # noqa: F811
    admin = admin_of(command)
    admin.delete_topics([f"{command.name}-in"])[f"{command.name}-in"].result()
    deadline = time.monotonic() + 20
    while f"{command.name}-in" in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    command.make_topic()
    fill(command, 100, 100 + count)


def make_the_topic_anew_and_longer(command: Command) -> None:  # noqa: F811
    make_the_topic_anew(command, 12)


@pytest.mark.parametrize(
    ("lose", "words", "left"),
    [
        (lose_the_next_ten, "offset 10 is not in the log, which holds 20 to 25", range(20, 25)),
        (
            make_the_topic_anew_and_longer,
            "was read up to offset 10, but its topic was deleted and recreated",
            range(100, 112),
        ),
        pytest.param(
            make_the_topic_anew,
            "was read up to offset 10, but now it ends at 5",
            range(100, 105),
            marks=pytest.mark.faults,
        ),
    ],
)
def test_lost_records_end_the_run_or_are_told(
    command: Command,  # noqa: F811
    lose: Callable[[Command], None],
    words: str,
    left: range,
) -> None:
    begin(command)
    lose(command)
    line = command.refused()
    assert words in line
    assert "fail_on_data_loss: false" in line
    assert "failOnDataLoss" not in line  # that is how Spark's own programs say it
    assert numbers(command) == list(range(10))  # nothing is half done

    done = command.run("--set", "from.fail_on_data_loss=false")
    assert done.code == 0, done.errors
    assert [words in warning for warning in done.warnings] == [True], done.warnings
    assert numbers(command) == [*range(10), *left]


def test_a_topic_that_is_gone_is_told_before_spark_is_asked(command: Command) -> None:  # noqa: F811
    begin(command)
    admin = admin_of(command)
    admin.delete_topics([f"{command.name}-in"])[f"{command.name}-in"].result()
    assert f"there is no topic '{command.name}-in'" in command.refused(code=2)
    assert numbers(command) == list(range(10))


def test_partitions_that_are_added_are_read_from_their_beginning(command: Command) -> None:  # noqa: F811
    begin(command)
    admin = admin_of(command)
    admin.create_partitions([NewPartitions(f"{command.name}-in", 3)])[f"{command.name}-in"].result()
    time.sleep(0.5)
    fill(command, 10, 20, partition=2)
    done = command.run()
    assert (done.code, done.warnings) == (0, [])
    assert numbers(command) == list(range(20))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def fill_with_noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    "damage", [cut, *(pytest.param(damage, marks=pytest.mark.faults) for damage in (empty, fill_with_noise))]
)
def test_a_damaged_checkpoint_is_told_in_a_line_and_put_aside(
    command: Command,  # noqa: F811
    damage: Callable[[Path], None],
) -> None:
    begin(command)
    fill(command, 10, 12)
    whole = command.folder / "whole"
    state = command.folder / "state" / command.name
    shutil.copytree(state, whole)
    (kept,) = (state / "main").glob("query-*")
    for name in ("checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/commits/0", f"{kept.name}/swept"):
        file = state / "main" / name
        damage(file)
        for crc in file.parent.glob(f".{file.name}.crc"):
            crc.unlink()
        line = command.refused()
        assert f"{name} is damaged" in line, line
        assert "--fresh" in line
        assert numbers(command) == list(range(10))
        shutil.rmtree(state)
        shutil.copytree(whole, state)

    damage(command.checkpoint() / "offsets" / "0")
    command.write(FILE.replace('{name}-out"', '{name}-new"').replace("rows.db", "new.db"))
    assert command.run("--fresh").code == 0
    found = [message.json["n"] for message in read_all(command.bootstrap, f"{command.name}-new")]
    assert sorted(found) == list(range(12))


def test_a_checkpoint_with_lost_parts_writes_nothing_twice(command: Command) -> None:  # noqa: F811
    begin(command)
    fill(command, 10, 12)
    (command.checkpoint() / "metadata").unlink()
    assert "metadata is missing" in command.refused()
    assert numbers(command) == list(range(10))
    shutil.rmtree(command.checkpoint().parent)
    assert "has rows of an earlier query" in command.refused()
    assert numbers(command) == list(range(10))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size: 10 seconds", "size: 20 seconds", 'window {"count": "rows", "size": 10000}'),
        ("  - window: {size: 10 seconds, count: rows}\n", "", "no step that keeps state"),
    ],
)
def test_steps_with_state_that_were_changed_are_told(command: Command, old: str, new: str, words: str) -> None:  # noqa: F811
    command.write(WINDOWS)
    command.make_topic()
    fill(command, 0, 100)
    assert command.run().code == 0
    command.write(WINDOWS.replace(old, new))
    line = command.refused(code=2)
    assert words in line
    assert "--fresh" in line


def test_a_stream_that_was_renamed_does_not_begin_anew_in_silence(command: Command) -> None:  # noqa: F811
    body = FILE.partition("from:")
    text = f"{body[0]}streams:\n  STREAM:\n" + "".join(f"    {line}\n" for line in (body[1] + body[2]).splitlines())
    command.write(text.replace("STREAM", "first"))
    command.make_topic()
    fill(command, 0, 10)
    assert command.run().code == 0
    command.write(text.replace("STREAM", "second"))
    line = command.refused(code=2)
    assert "stream 'second' has no checkpoint, but" in line
    assert numbers(command) == list(range(10))
    command.write(text.replace("STREAM", "first"))  # as the line says
    fill(command, 10, 12)
    assert command.run().code == 0
    assert numbers(command) == list(range(12))


def test_records_of_a_transaction_that_was_aborted_were_never_there(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    command.make_topic()
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": command.name})
    producer.init_transactions()
    for n, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        producer.produce(f"{command.name}-in", f'{{"n":{n}}}')
        producer.flush()
        ends()
    assert command.run().code == 0
    assert numbers(command) == [0, 2]


def test_two_streams_that_begin_a_topic_in_different_places_cannot_be_one_query(command: Command) -> None:  # noqa: F811
    command.write("""\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  all:
    from: {topic: "{name}-in"}
    steps: [{parse: {format: json, schema: {n: long}}}]
  new:
    from: {topic: "{name}-in", starting: latest}
    steps: [{parse: {format: json, schema: {n: long}}}]
  both:
    from: all
    steps: [{union: new}]
    to: {sqlite: rows.db, table: rows}
""")
    command.make_topic()
    fill(command, 0, 10)
    assert "read topic " in command.refused()
    assert not (command.folder / "rows.db").exists()
