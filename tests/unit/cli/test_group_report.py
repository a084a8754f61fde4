"""Lines about groups; the expected ones were printed by Kafka's own tool."""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.cli.groups.report import (
    assignment_text,
    deletion_lines,
    list_lines,
    member_lines,
    offset_lines,
    reset_lines,
    state_lines,
    state_problem,
)
from ottla.client.groups import Group, Listing, Member
from ottla.operations.group_lag import GroupPartition
from ottla.operations.lag import PartitionLag

T0, T1, U0 = TopicPartition("i-t", 0), TopicPartition("i-t", 1), TopicPartition("i-u", 0)
NEW = Member("PaPbWJ1qR3e+je07Sx4lAg", None, "n1", "/127.0.0.1", [T1, T0, U0], [T0, T1, U0], 2, True)
STATIC = Member("inst-4c378261-f5e1-41df-8c96-b02607375c1c", "inst", "c2", "/127.0.0.1", [T0, T1])


def test_groups_are_listed_with_the_columns_that_were_asked_for() -> None:
    groups = [Listing("i-new", "consumer", "Stable", "Consumer"), Listing("i-old", "", "", "")]
    assert list_lines(groups, with_type=False, with_state=True) == [
        "GROUP                     STATE               ",
        "i-new                     Stable              ",
        "i-old                     Unknown             ",
    ]
    assert list_lines(groups[:1], with_type=True, with_state=True) == [
        "GROUP                     TYPE                 STATE               ",
        "i-new                     Consumer             Stable              ",
    ]


def test_a_partition_that_nobody_reads_has_dashes() -> None:
    rows = [
        GroupPartition("i-empty", T0, PartitionLag(2, 5), None, None),
        GroupPartition("i-empty", T1, PartitionLag(5, None), 0, None),
    ]
    assert offset_lines(rows, is_verbose=False) == [
        "",
        (
            "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG            "
            " CONSUMER-ID     "
            "HOST            CLIENT-ID"
        ),
        (
            "i-empty         i-t             0          2               5               3              "
            " -               "
            "-               -"
        ),
        (
            "i-empty         i-t             1          5               -               -              "
            " -               "
            "-               -"
        ),
    ]
    assert offset_lines(rows, is_verbose=True)[1:3] == [
        (
            "GROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  LOG-END-OFFSET "
            " LAG             "
            "CONSUMER-ID     HOST            CLIENT-ID"
        ),
        (
            "i-empty         i-t             0          -               2               5              "
            " 3               "
            "-               -               -"
        ),
    ]


def test_long_names_widen_their_columns() -> None:
    (_, head, row) = offset_lines([GroupPartition("i-new", T0, PartitionLag(None, 0), None, NEW)], is_verbose=False)
    assert head.endswith("CONSUMER-ID            HOST            CLIENT-ID")
    assert row.endswith("-               0               -               PaPbWJ1qR3e+je07Sx4lAg /127.0.0.1      n1")


def test_members_are_shown_with_what_they_have() -> None:
    group = Group("i-new", "Stable", "uniform", 1, [NEW], 2, 2)
    assert member_lines(group, is_verbose=False) == [
        "",
        "GROUP           CONSUMER-ID            HOST            CLIENT-ID       #PARTITIONS     ",
        "i-new           PaPbWJ1qR3e+je07Sx4lAg /127.0.0.1      n1              3               ",
    ]
    assert member_lines(group, is_verbose=True)[1:] == [
        (
            "GROUP           CONSUMER-ID            HOST            CLIENT-ID       #PARTITIONS     CURRENT-EPOCH   "
            "CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   "
        ),
        (
            "i-new           PaPbWJ1qR3e+je07Sx4lAg /127.0.0.1      n1              3               2               "
            "i-t:0,1;i-u:0        2               i-t:0,1;i-u:0       "
        ),
    ]


def test_static_and_moving_members_add_columns() -> None:
    static = Group("i-static", "Stable", "range", 1, [STATIC])
    assert member_lines(static, is_verbose=False)[1:] == [
        (
            "GROUP           CONSUMER-ID                               GROUP-INSTANCE-ID HOST          "
            "  CLIENT-ID       "
            "#PARTITIONS     "
        ),
        (
            "i-static        inst-4c378261-f5e1-41df-8c96-b02607375c1c inst              /127.0.0.1    "
            "  c2              "
            "2               "
        ),
    ]
    moving = Group("g", "Stable", "uniform", 1, [NEW, STATIC._replace(is_upgraded=False, epoch=2)], 3, 3)
    head, first, second = member_lines(moving, is_verbose=True)[1:]
    assert (head[-8:], first[-4:], second[-5:]) == ("UPGRADED", "true", "false")
    assert not member_lines(moving, is_verbose=False)[1].endswith("UPGRADED")


def test_a_group_without_members_has_only_headings() -> None:
    empty = Group("i-empty", "Empty", "", 1, [])
    assert member_lines(empty, is_verbose=False) == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
    ]
    assert state_problem(empty) == "Consumer group 'i-empty' has no active members."
    rebalancing = empty._replace(state="Reconciling")
    assert state_problem(rebalancing) == "Warning: Consumer group 'i-empty' is rebalancing."
    assert state_problem(empty._replace(state="Stable")) is None


def test_the_state_names_the_coordinator() -> None:
    group = Group("i-new", "Stable", "uniform", 1, [NEW], 2, 2)
    assert state_lines(group, "127.0.0.1:19000  (1)", is_verbose=False) == [
        "",
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
        "i-new           127.0.0.1:19000  (1)      uniform              Stable               1",
    ]
    assert state_lines(group, "127.0.0.1:19000  (1)", is_verbose=True)[1:] == [
        (
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                GROUP-EPOCH     "
            "TARGET-ASSIGNMENT-EPOCH   #MEMBERS"
        ),
        (
            "i-new           127.0.0.1:19000  (1)      uniform              Stable               2               "
            "2                         1"
        ),
    ]


def test_new_offsets_are_listed_by_group() -> None:
    assert reset_lines({"i-empty": {T0: 5, T1: 4}}) == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "i-empty         i-t             0          5",
        "i-empty         i-t             1          4",
    ]
    assert reset_lines({"i-new": {}}) == ["", "GROUP           TOPIC           PARTITION  NEW-OFFSET"]
    assert reset_lines({}) == [""]


def test_deletions_are_sorted_as_text() -> None:
    places = {TopicPartition("i-t", number): "Successful" for number in (2, 10)}
    assert deletion_lines({**places, TopicPartition("i-nope", -1): "Error: x"}) == [
        "",
        "TOPIC           PARTITION  STATUS         ",
        "i-nope          -          Error: x       ",
        "i-t             10         Successful     ",
        "i-t             2          Successful     ",
    ]


def test_partitions_are_written_by_topic() -> None:
    assert assignment_text([U0, T1, T0, TopicPartition("i-t", 10)]) == "i-t:0,1,10;i-u:0"
    assert assignment_text([]) == "-"
