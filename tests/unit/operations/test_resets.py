"""Offset resets of every scenario, and offset files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.reports.group_report import reset_remarks, reset_warnings
from ottla.client.admin import Partition, Topic
from ottla.client.errors import BrokerError, error_from_code
from ottla.client.groups import CommittedOffset
from ottla.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp
from ottla.operations import resets as group_reset
from ottla.operations.errors import OperationError
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SHIFT_BY,
    TO_CURRENT,
    TO_EARLIEST,
    TO_LATEST,
    TO_OFFSET,
    OffsetResetter,
    Scenario,
    UnreadableError,
    WrongPartitionsError,
    check_partitions,
    clamp_offsets,
    export_text,
    named_partitions,
    parse_partitions,
    parse_plans,
    read_plans,
)

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
STARTS, ENDS = {A0: 2, A1: 0, A2: 0}, {A0: 9, A1: 5, A2: 0}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topic `a`: partition 0 holds the offsets 2 to 8, 1 holds 0 to 4, 2 is empty. The group is at 4 and 5."""

    def list_offsets(_client: object, places: Iterable[TopicPartition], time: int) -> Any:
        ends = {EARLIEST: STARTS, LATEST: ENDS}.get(time, {A0: 7, A1: 3, A2: -1})
        known = [place for place in places if place in ends]
        unknown = [place for place in places if place not in ends]
        failures = {place: error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION) for place in unknown}
        return {place: OffsetAndTimestamp(ends[place], 0) for place in known}, failures

    class FakeAdmin:
        def __init__(self, _client: object) -> None:
            pass

        def topics(self, names: list[str]) -> list[Topic]:
            partitions = [Partition(number, 1 if number < 3 else -1, [1], [1]) for number in range(4)]
            return [Topic("a", None, False, partitions)] if "a" in names else []  # type: ignore[arg-type]

    monkeypatch.setattr(group_reset, "list_offsets", list_offsets)
    monkeypatch.setattr(group_reset, "Admin", FakeAdmin)
    committed = {A0: CommittedOffset(4, None, ""), A1: CommittedOffset(5, None, "")}
    monkeypatch.setattr(group_reset, "committed_offsets", lambda _client, _group: committed)


def reset(scenario: Scenario, *places: TopicPartition) -> tuple[dict[TopicPartition, int], list[str]]:
    plan = OffsetResetter(None, scenario).plan("g", places)  # type: ignore[arg-type]
    return plan.offsets, [*reset_remarks("g", plan), *reset_warnings(plan)]


@pytest.mark.parametrize(
    ("scenario", "offsets"),
    [
        (Scenario(TO_EARLIEST), {A0: 2, A1: 0, A2: 0}),
        (Scenario(TO_LATEST), {A0: 9, A1: 5, A2: 0}),
        (Scenario(TO_CURRENT), {A0: 4, A1: 5, A2: 0}),
        (Scenario(TO_OFFSET, 3), {A0: 3, A1: 3, A2: 0}),
        (Scenario(TO_OFFSET, 100), {A0: 9, A1: 5, A2: 0}),
        (Scenario(TO_OFFSET, -1), {A0: 2, A1: 0, A2: 0}),
        (Scenario(BY_DURATION, 1234), {A0: 7, A1: 3, A2: 0}),
    ],
)
def test_each_scenario_has_its_offsets(scenario: Scenario, offsets: dict[TopicPartition, int]) -> None:
    assert reset(scenario, A0, A1, A2)[0] == offsets


def test_a_shift_needs_a_place_to_start_from() -> None:
    assert reset(Scenario(SHIFT_BY, -1), A0, A1) == ({A0: 3, A1: 4}, [])
    found, said = reset(Scenario(SHIFT_BY, 2), A0, A1)
    assert (found, said) == (
        {A0: 6, A1: 5},
        ["New offset (7) is higher than latest offset for topic partition a-1. Value will be set to 5"],
    )
    with pytest.raises(WrongPartitionsError, match="Cannot shift offset for partition a-2"):
        reset(Scenario(SHIFT_BY, 1), A2)


def test_a_partition_without_later_records_goes_to_its_end_and_is_reported() -> None:
    found, said = reset(Scenario(BY_DURATION, 1234), A2)
    assert found == {A2: 0}
    assert said == ["\nWarn: Partition 2 from topic a is empty. Falling back to latest known offset."]


def test_a_file_has_plans_for_some_groups() -> None:
    plans = {"g": {A0: 1, A1: 3}}
    assert reset(Scenario(FROM_FILE, plans=plans))[0] == {A0: 2, A1: 3}
    assert reset(Scenario(FROM_FILE, plans={"other": {}})) == ({}, ["\nError: No reset plan for group g found"])
    with pytest.raises(BrokerError, match="metadata for topic `ghost` could not be found"):
        reset(Scenario(FROM_FILE, plans={"g": {TopicPartition("ghost", 0): 1}}))


def test_offsets_stay_inside_of_the_log() -> None:
    plan = clamp_offsets({A0: 1, A1: 5}, STARTS, ENDS)
    assert (plan.offsets, plan.out_of_range) == ({A0: 2, A1: 5}, {A0: 1})
    assert reset_warnings(plan) == [
        "New offset (1) is lower than earliest offset for topic partition a-0. Value will be set to 2"
    ]


def test_partitions_that_are_not_there_are_refused() -> None:
    with pytest.raises(OperationError, match='The partitions "a-7,a-8" do not exist'):
        check_partitions(None, [A0, TopicPartition("a", 7), TopicPartition("a", 8)])  # type: ignore[arg-type]
    with pytest.raises(OperationError, match='The partitions "a-3" have no leader'):
        check_partitions(None, [TopicPartition("a", 3)])  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match="topic b does not exist"):
        named_partitions(None, ["a", "b"])  # type: ignore[arg-type]


def test_partitions_are_named_with_colons() -> None:
    assert parse_partitions("a:0,2") == [A0, A2]
    assert named_partitions(None, ["a:2", "a"])[:2] == [A2, A0]  # type: ignore[arg-type]
    for word in ("a:", "a:0:1", ":", "a:x", "a:0,,1", "a:99999999999"):
        with pytest.raises(WrongPartitionsError):
            parse_partitions(word)


def test_files_are_written_as_kafka_writes_them() -> None:
    place = TopicPartition("a-topic-with-a-very-long-name", 0)
    assert export_text({"g": {A0: 5}}, is_one_group=True) == "a,0,5\n"
    assert export_text({"g": {A0: 5, place: 1}}, is_one_group=False) == f'g,a,0,5\ng,"{place.topic}",0,1\n'
    assert export_text({'a "b", c': {A0: 5}}, is_one_group=False) == '"a ""b"", c",a,0,5\n'


def test_a_group_with_a_newline_made_a_line_of_its_own_in_an_export() -> None:
    text = export_text({"g\nforged": {A0: 5}, "h\u2028forged": {A0: 6}}, is_one_group=False)
    assert text == "g\\nforged,a,0,5\nh\\u2028forged,a,0,6\n"
    assert len(parse_plans(text, None)) == 2


def test_files_are_read_with_and_without_groups() -> None:
    assert parse_plans("a,0,5\na,1,6\r\n", "g") == {"g": {A0: 5, A1: 6}}
    assert parse_plans('"g, h",a,0,5\n', None) == {"g, h": {A0: 5}}
    assert parse_plans("g,a,0,5\nh,a,1,6", "g") == {"g": {A0: 5}, "h": {A1: 6}}
    assert parse_plans("a,1", "g") == {"g": {A1: 0}}


@pytest.mark.parametrize("data", ["", "\n\n", "a,x,y", "a,0,1\n\na,1,2", "a,0,1,2,3", "g,a,99999999999,1", '"a,0,1'])
def test_files_that_make_no_sense_are_refused(data: str) -> None:
    with pytest.raises(OperationError, match="line"):
        parse_plans(data, "g")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UnreadableError, match="Unable to read file /not/there"):
        read_plans("/not/there", "g")
