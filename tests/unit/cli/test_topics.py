"""`ottla topics` with an admin client that records its calls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli import tables, terminal
from ottla.cli.commands import topics
from ottla.client.admin import Created, Partition, Topic
from ottla.client.configs import Config
from ottla.client.errors import error_from_code
from ottla.client.reassignments import Reassignment


class FakeAdmin:
    """A cluster with two topics."""

    def __init__(self, client: object = None) -> None:
        self.client = client
        self.done: list[tuple[Any, ...]] = []

    def topics(self) -> list[Topic]:
        return [
            Topic("__own", UUID(int=1), True, []),
            Topic("orders", UUID(int=2), False, [Partition(0, 1, [1, 2], [1]), Partition(1, -1, [1, 2], [])]),
        ]

    def describe(self, names: list[str]) -> list[Topic]:
        return [topic for topic in self.topics() if topic.name in names]

    def topic_configs(self, names: Any) -> dict[str, list[Config]]:
        return {name: [Config("retention.ms", "5", 1, False)] for name in names}

    def live_brokers(self) -> list[int]:
        return [1]

    def create_topic(self, name: str, **details: Any) -> Created:
        if name == "orders":
            raise error_from_code(Error.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
        self.done.append(("create", name, details))
        return Created(3, 1)

    def create_partitions(self, name: str, count: int) -> None:
        self.done.append(("grow", name, count))

    def delete_topics(self, names: list[str]) -> None:
        self.done.append(("delete", names))


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()
    monkeypatch.setattr(topics, "Admin", lambda _: fake)
    moving = {TopicPartition("orders", 0): Reassignment([1, 2], [2], [])}
    monkeypatch.setattr(topics, "reassignments_of", lambda _client, _topics: moving)
    return fake


def test_topics_are_created(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert topics.run(["create", "a", "--partitions", "3", "--config", "retention.ms=5"]) == 0
    assert capsys.readouterr().out == "Created topic a (3 partitions).\n"
    details = {"partitions": 3, "replication_factor": -1, "configs": {"retention.ms": "5"}}
    assert admin.done == [("create", "a", details)]


def test_an_existing_topic_can_be_accepted(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert topics.run(["create", "orders", "--if-not-exists"]) == 0
    assert capsys.readouterr().out == "Topic orders already exists.\n"
    with pytest.raises(Exception, match="already exists"):
        topics.run(["create", "orders"])


def test_a_bad_name_is_refused_before_anything_is_created(admin: FakeAdmin) -> None:
    with pytest.raises(topics.ToolError, match=r"'..' is not allowed"):
        topics.run(["create", "good", ".."])
    assert admin.done == []


def test_in_a_pipe_a_list_is_names_without_internal_ones(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    topics.run(["list"])
    assert capsys.readouterr().out == "orders\n"
    topics.run(["list", "--internal"])
    assert capsys.readouterr().out == "__own\norders\n"
    topics.run(["list", "x.*"])
    assert capsys.readouterr().out == ""
    with pytest.raises(topics.ToolError, match="is not a regular expression"):
        topics.run(["list", "["])


def test_in_a_pipe_descriptions_have_kafkas_layout(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    topics.run(["describe", "orders"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=5")
    assert lines[1].startswith("\tTopic: orders\tPartition: 0\tLeader: 1\t")
    assert "\tIsr: 1\tAdding Replicas: 2\tRemoving Replicas: \tElr: " in lines[1]
    assert "Adding" not in lines[2]


@pytest.mark.parametrize(
    ("flag", "numbers"),
    [
        ("--problems", [1]),
        ("--under-replicated-partitions", [1]),
        ("--unavailable-partitions", [1]),
        ("--under-min-isr-partitions", [1]),
        ("--at-min-isr-partitions", [0]),
    ],
)
def test_only_partitions_in_trouble_are_shown(
    admin: FakeAdmin,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    numbers: list[int],
) -> None:
    """A replica that is being added is not missing, neither in a pipe nor on a terminal."""
    topics.run(["describe", flag])
    lines = capsys.readouterr().out.splitlines()
    assert [f"Partition: {number}" in line for number, line in zip(numbers, lines, strict=True)] == [True]
    monkeypatch.setattr(topics, "is_terminal", lambda _: True)
    tabled: list[int] = []
    monkeypatch.setattr(topics, "print_table", lambda _, rows, __: tabled.extend(int(row[0]) for row in rows))
    topics.run(["describe", flag])
    assert tabled == numbers


def test_on_a_terminal_there_are_tables(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (topics, tables):
        monkeypatch.setattr(module, "is_terminal", lambda _: True)
    topics.run(["list"])
    assert "no leader" in capsys.readouterr().out
    topics.run(["describe", "orders"])
    shown = capsys.readouterr().out
    assert "In sync" in shown
    assert "+2" in shown


def test_a_missing_topic_gets_a_suggestion(admin: FakeAdmin) -> None:
    with pytest.raises(topics.ToolError, match=r"topic order does not exist \(did you mean orders\?\)"):
        topics.run(["describe", "order"])


def test_topics_grow(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert topics.run(["alter", "orders", "--partitions", "4"]) == 0
    assert admin.done == [("grow", "orders", 4)]


def test_in_a_script_topics_are_deleted_without_a_question(admin: FakeAdmin) -> None:
    assert topics.run(["delete", "orders"]) == 0
    assert topics.run(["delete", "nothing", "--if-exists"]) == 0
    assert admin.done == [("delete", ["orders"])]


@pytest.mark.parametrize(("is_sure", "code", "done"), [(False, 1, []), (True, 0, [("delete", ["orders"])])])
def test_deleting_topics_asks_for_confirmation(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, is_sure: bool, code: int, done: list[Any]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda _: True)
    monkeypatch.setattr(terminal, "confirm", lambda _: is_sure)
    assert topics.run(["delete", "orders"]) == code
    assert admin.done == done


def test_tables_are_padded_without_rich() -> None:
    assert tables.padded(("Name", "N"), [("long name", "1"), ("x", "22")]) == [
        "Name       N",
        "long name  1",
        "x          22",
    ]
