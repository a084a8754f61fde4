"""The sweep for expired offsets, and changes between its steps."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordination.batch import RECORDS_MAX, VISITS_MAX
from ottla.coordination.machine import Decision, TransactionalProducer
from ottla.groups.classic_group import ClassicGroup, ClassicGroupState
from ottla.groups.consumer_group import ConsumerGroup
from ottla.groups.coordinator_records import commit_record
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
OLD_MS = NOW_MS - 8 * DAY_MS
MANY = 5 * RECORDS_MAX


def make_machine() -> GroupCoordinator:
    machine = GroupCoordinator(GroupSettings(), lambda _: None, lambda: None)  # type: ignore[arg-type,return-value]
    machine.on_loaded(0)
    return machine


def commit(
    machine: GroupCoordinator,
    group: str,
    partitions: range,
    at_ms: int = OLD_MS,
    topic: str = "t",
    stamp: TransactionalProducer | None = None,
) -> None:
    for partition in partitions:
        record = commit_record(group, topic, partition, 5, -1, "", at_ms)
        machine.replay(record.key, record.value, stamp)


def happen(machine: GroupCoordinator, decision: Decision) -> None:
    for key, value in decision.records:
        machine.replay(key, value, None)


def sweep(machine: GroupCoordinator) -> Iterator[Decision]:
    decisions = machine.sweep(NOW_MS, 1 << 20)
    assert decisions is not None
    for decision in decisions:
        happen(machine, decision)
        yield decision


def count(machine: GroupCoordinator, group: str = "g") -> int:
    return sum(map(len, machine.offsets.topics(group).values()))


def test_it_is_looked_for_when_it_is_due() -> None:
    machine = make_machine()
    interval_ms = machine.settings.offsets_check_interval_ms
    assert machine.sweep(interval_ms - 1, 1 << 20) is None
    assert machine.next_wakeup_ms() == interval_ms
    assert machine.sweep(interval_ms, 1 << 20) is not None
    assert machine.next_wakeup_ms() == 2 * interval_ms


def test_old_offsets_expire_in_batches_and_the_group_with_the_last_one() -> None:
    machine = make_machine()
    commit(machine, "g", range(MANY))
    commit(machine, "new", range(MANY), NOW_MS - 6 * DAY_MS)
    sizes = [len(decision.records) for decision in sweep(machine)]
    assert max(sizes) == RECORDS_MAX
    assert sum(sizes) == MANY + 1
    assert count(machine) == 0
    assert count(machine, "new") == MANY
    assert list(machine.groups) == ["new"]


def test_sweep_yields_also_without_results() -> None:
    machine = make_machine()
    commit(machine, "g", range(4 * VISITS_MAX), NOW_MS)
    for number in range(2 * VISITS_MAX):
        machine.groups[f"g{number}"] = group = ClassicGroup(f"g{number}", NOW_MS)
        group.state = ClassicGroupState.STABLE
    decisions = list(sweep(machine))
    assert len(decisions) >= 6
    assert not any(decision.records for decision in decisions)


def test_offset_committed_during_the_sweep_stays() -> None:
    machine = make_machine()
    commit(machine, "g", range(MANY))
    decisions = sweep(machine)
    next(decisions)
    next(decisions)
    commit(machine, "g", range(MANY), NOW_MS)
    assert sum(len(decision.records) for decision in decisions) == 0
    assert count(machine) == MANY
    assert list(machine.groups) == ["g"]


def test_group_that_gets_members_during_the_sweep_keeps_its_offsets() -> None:
    machine = make_machine()
    commit(machine, "g", range(MANY))
    decisions = sweep(machine)
    next(decisions)
    next(decisions)
    machine.groups["g"].state = ClassicGroupState.PREPARING_REBALANCE
    left = count(machine)
    assert 0 < left < MANY
    assert sum(len(decision.records) for decision in decisions) == 0
    assert count(machine) == left
    assert list(machine.groups) == ["g"]


def test_a_group_whose_offsets_could_not_be_forgotten_stays() -> None:
    machine = make_machine()
    commit(machine, "g", range(3))
    decisions = machine.sweep(NOW_MS, 1 << 20)
    assert decisions is not None
    assert [len(decision.records) for decision in decisions] == [3, 0]  # and none of them is written


def test_offset_with_a_pending_transaction_does_not_expire() -> None:
    machine = make_machine()
    commit(machine, "g", range(3))
    commit(machine, "g", range(2), stamp=TransactionalProducer(7, 0))
    list(sweep(machine))
    assert count(machine) == 2
    assert list(machine.groups) == ["g"]


def test_consumer_group_is_deleted_only_with_its_last_offset() -> None:
    machine = make_machine()
    for name in ("without", "with"):
        machine.consumer.groups[name] = ConsumerGroup(name)
    commit(machine, "some", range(1))  # something to be written is found before
    commit(machine, "with", range(3))
    list(sweep(machine))
    assert list(machine.consumer.groups) == ["without"]


def test_many_groups_end_in_batches_that_are_not_too_large() -> None:
    machine = make_machine()
    names = [f"{number}" * 1_000 for number in range(10, 40)]
    for name in names:
        machine.groups[name] = ClassicGroup(name, OLD_MS)
    decisions = machine.sweep(NOW_MS, 10_000)
    assert decisions is not None
    sizes = []
    for decision in decisions:
        happen(machine, decision)
        sizes.append(len(decision.records))
    assert sum(sizes) == len(names)
    assert max(sizes) == 4
    assert not machine.groups
