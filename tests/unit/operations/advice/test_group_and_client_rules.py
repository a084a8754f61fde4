"""Advice about groups and clients."""

from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.operations.advice.advice import Advice
from ottla.operations.advice.client_rules import advise_client, client_facts
from ottla.operations.advice.group_rules import GroupFacts, MemberFacts, PartitionProgress, advise_group
from ottla.operations.advice.group_samples import Commit, consumption_rates
from ottla.operations.metric_readings import Reading, parse_metrics

PLACES = [TopicPartition("orders", number) for number in range(4)]


def member(name: str, *numbers: int) -> MemberFacts:
    return MemberFacts(name, tuple(PLACES[number] for number in numbers))


def advice(**fields: Any) -> dict[str, Advice]:
    given = {"state": "Stable", "partition_counts": {"orders": 4}, **fields}
    return {each.rule: each for each in advise_group(GroupFacts("billing", **given)).advice}


def test_members_without_partitions_are_reported() -> None:
    members = [member(str(number), number) for number in range(4)] + [member("4"), member("5")]
    said = advice(members=members)["idle-members"]
    assert said.estimates["partitions"] == 6
    assert "ottla topics alter orders --partitions 6" in said.change


def test_no_member_is_idle_during_a_rebalance_or_with_enough_partitions() -> None:
    members = [member(str(number), number) for number in range(4)] + [member("4")]
    assert not advice(members=members, state="PreparingRebalance")
    assert not advice(members=[member("0", 0, 1, 2, 3), member("1")])


def test_a_group_that_falls_behind_needs_more_members() -> None:
    progress = {place: PartitionProgress(1000, 100.0, 50.0) for place in PLACES}
    said = advice(members=[member("0", 0, 1), member("1", 2, 3)], progress=progress)["too-few-members"]
    assert said.estimates["members"] == 5  # 1.25 * 400 / 100
    assert said.estimates["drained_s"] == pytest.approx(40)
    assert said.change.startswith("5 partitions and 5 members")


def test_a_group_that_catches_up_or_has_no_rates_is_left_alone() -> None:
    members = [member("0", 0, 1, 2, 3)]
    for progress in (
        PartitionProgress(10_000, 100.0, 300.0),
        PartitionProgress(50, 100.0, 50.0),
        PartitionProgress(10_000, None, None),
    ):
        assert not advice(members=members, progress=dict.fromkeys(PLACES, progress))
    # offsets do not change
    assert not advice(members=members, progress=dict.fromkeys(PLACES, PartitionProgress(10_000, 100.0, 0.0)))


def test_one_slow_member_is_named() -> None:
    progress = dict.fromkeys(PLACES, PartitionProgress(0, 100.0, 100.0)) | {
        PLACES[3]: PartitionProgress(5000, 100.0, 20.0)
    }
    said = advice(members=[member(f"app-{number}", number) for number in range(4)], progress=progress)
    assert list(said) == ["slow-member"]
    assert "app-3" in said["slow-member"].observation


def test_one_member_that_gets_more_than_others_is_named() -> None:
    progress = dict.fromkeys(PLACES, PartitionProgress(0, 10.0, 10.0)) | {
        PLACES[3]: PartitionProgress(5000, 100.0, 50.0)
    }
    said = advice(members=[member(f"app-{number}", number) for number in range(4)], progress=progress)
    assert list(said) == ["unfair-share"]
    assert "--topic" in said["unfair-share"].change


def test_a_commit_for_each_record_is_too_many() -> None:
    progress = {PLACES[0]: PartitionProgress(0, 100.0, 100.0)}
    said = advice(members=[member("0", 0)], progress=progress, commits_per_s=100.0)["commits"]
    assert said.estimates == {"commits_per_s": 0.2, "times_fewer": 500.0}
    assert not advice(members=[member("0", 0)], progress=progress, commits_per_s=9.0)
    assert not advice(
        members=[member("0", 0)], progress={PLACES[0]: PartitionProgress(0, 9e3, 9e3)}, commits_per_s=100.0
    )
    assert not advice(members=[member("0", 0)], progress=progress)


def test_rates_need_two_commits_a_second_apart() -> None:
    first = Commit(PLACES[0], 100, 10_000)
    assert consumption_rates([first, Commit(PLACES[0], 300, 12_000)]) == {PLACES[0]: 100.0}
    assert consumption_rates([first]) == {}
    assert consumption_rates([first, Commit(PLACES[0], 300, 10_500)]) == {}
    assert consumption_rates([first, Commit(PLACES[0], 0, 12_000)]) == {PLACES[0]: 0.0}  # its offsets were reset


# ---- clients


def reading(taken_s: float, *instances: str, idle: float | None = None, assigned: int = 1) -> Reading:
    labels = 'client_id="app",client_instance_id="{}"'
    lines = [f"ottla_client_producer_request_latency_avg{{{labels.format(name)}}} 1" for name in instances]
    for name in instances if idle is not None else ():
        lines.append(f"ottla_client_consumer_poll_idle_ratio_avg{{{labels.format(name)}}} {idle}")
        lines.append(f"ottla_client_consumer_coordinator_assigned_partitions{{{labels.format(name)}}} {assigned}")
    return parse_metrics("\n".join(lines), taken_s)


def client_advice(before: Reading, now: Reading) -> list[str]:
    facts = client_facts("app", [before], [now], [])
    assert facts is not None
    return [each.rule for each in advise_client(facts).advice]


def test_short_lived_clients_are_reported() -> None:
    assert client_advice(reading(0, "a"), reading(5, "b", "c", "d", "e")) == ["short-lives"]


def test_many_clients_that_stay_are_fine() -> None:
    stay = [str(number) for number in range(50)]
    assert not client_advice(reading(0, *stay), reading(5, *stay, "one more"))


def test_a_busy_application_is_not_helped_by_fetches() -> None:
    assert client_advice(reading(0, "a", idle=0.01), reading(5, "a", idle=0.01)) == ["busy-application"]
    assert not client_advice(reading(0, "a", idle=0.8), reading(5, "a", idle=0.8))
    assert not client_advice(reading(0, "a", idle=0.0), reading(5, "a", idle=0.0, assigned=0))


def test_an_unknown_client_has_no_facts() -> None:
    assert client_facts("nobody", [reading(0, "a")], [reading(5, "a")], []) is None
