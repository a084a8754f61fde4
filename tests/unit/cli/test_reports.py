"""Lines about groups and transactions; the expected ones were printed by Kafka's own tools."""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.cli.reports.group_report import (
    assignment_text,
    deletion_lines,
    list_lines,
    member_lines,
    offset_lines,
    reset_lines,
    state_lines,
    state_problem,
)
from ottla.cli.reports.transaction_report import (
    DESCRIBE_COLUMNS,
    LIST_COLUMNS,
    PRODUCER_COLUMNS,
    column_lines,
    described_row,
    hanging_row,
    list_rows,
    producer_row,
)
from ottla.client.groups import Group, GroupListing, Member
from ottla.client.transactions import DescribedTransaction
from ottla.operations.group_lag import GroupPartition
from ottla.operations.hanging_transactions import OpenTransaction, filter_hanging
from ottla.operations.lag import PartitionLag
from ottla.protocol.messages.transactions import ListedTransaction, ProducerState

T0, T1, U0 = TopicPartition("i-t", 0), TopicPartition("i-t", 1), TopicPartition("i-u", 0)
NEW = Member("PaPbWJ1qR3e+je07Sx4lAg", None, "n1", "/127.0.0.1", [T1, T0, U0], [T0, T1, U0], 2, True)
STATIC = Member("inst-4c378261-f5e1-41df-8c96-b02607375c1c", "inst", "c2", "/127.0.0.1", [T0, T1])


def test_groups_are_listed_with_the_requested_columns() -> None:
    groups = [GroupListing("i-new", "consumer", "Stable", "Consumer"), GroupListing("i-old", "", "", "")]
    assert list_lines(groups, with_type=False, with_state=True) == [
        "GROUP                     STATE               ",
        "i-new                     Stable              ",
        "i-old                     Unknown             ",
    ]
    assert list_lines(groups[:1], with_type=True, with_state=True) == [
        "GROUP                     TYPE                 STATE               ",
        "i-new                     Consumer             Stable              ",
    ]


def test_a_partition_without_a_consumer_has_dashes() -> None:
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


def test_members_are_shown_with_their_partitions() -> None:
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


X0, X1 = TopicPartition("i-x", 0), TopicPartition("i-x", 1)
OPEN = DescribedTransaction(1, "i-tx-open", 46, 0, "Ongoing", 60_000, 1_794_750_814_027, [X1, X0])


def producer(producer_id: int, start: int = 0) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=0,
        last_sequence=0,
        last_timestamp=1_794_750_814_025,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def test_every_column_ends_with_a_tab() -> None:
    listed = ListedTransaction(transactional_id="i-tx-open", producer_id=46, transaction_state="Ongoing")
    assert column_lines(LIST_COLUMNS, list_rows({1: [listed]})) == [
        "TransactionalId\tCoordinator\tProducerId\tTransactionState\t",
        "i-tx-open      \t1          \t46        \tOngoing         \t",
    ]
    assert column_lines(LIST_COLUMNS, []) == ["TransactionalId\tCoordinator\tProducerId\tTransactionState\t"]


def test_a_transaction_that_runs_has_a_duration() -> None:
    assert column_lines(DESCRIBE_COLUMNS, [described_row(OPEN, 1_794_750_820_095)])[1] == (
        "1            \ti-tx-open      \t46        \t0            \tOngoing         \t60000               \t"
        "1794750814027                \t6068                 \ti-x-0,i-x-1    \t"
    )
    empty = OPEN._replace(state="Empty", start_ms=None, partitions=[])
    assert described_row(empty, 5)[-3:] == ("None", "None", "")


def test_a_producer_without_a_transaction_has_none() -> None:
    assert column_lines(PRODUCER_COLUMNS, [producer_row(producer(46))])[1] == (
        "46        \t0            \t-1                    \t0           \t1794750814025\t"
        "0                            \t"
    )
    assert producer_row(producer(46, start=-1))[-1] == "None"


def test_a_transaction_hangs_when_no_coordinator_will_end_it() -> None:
    known, unknown, elsewhere = (OpenTransaction(X0, producer(number)) for number in (1, 2, 3))
    ids = {1: "a", 3: "c"}
    descriptions = {"a": OPEN._replace(partitions=[X0]), "c": OPEN._replace(partitions=[X1])}
    assert filter_hanging([known, unknown, elsewhere], ids, descriptions) == [unknown, elsewhere]
    assert filter_hanging([known], ids, {}) == [known]


def test_the_duration_of_a_hanging_transaction_is_in_minutes() -> None:
    row = hanging_row(OpenTransaction(X1, producer(46, start=7)), 1_794_750_814_025 + 61_000)
    assert row == ("i-x", "1", "46", "0", "-1", "7", "1794750814025", "1")
