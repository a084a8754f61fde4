"""Dead letters: format, counting, selection, and resending exactly once and unchanged."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.operations.messages.cluster import TOPIC, Cluster

from ottla.base.errors import Error
from ottla.operations.dead_letters import (
    HEADER_NAMES,
    DeadLetterCounter,
    Letter,
    LetterFilter,
    LetterKind,
    Outcome,
    Source,
    list_letters,
    normalize_reason,
    read_letter,
    read_one_letter,
    resend_letters,
    select_letters,
)
from ottla.operations.messages.producer import partition_of_key
from ottla.operations.messages.record_reader import Record as Walked
from ottla.operations.messages.record_reader import RecordState
from ottla.protocol.records import Record

ID, OTHER_ID = UUID(int=1), UUID(int=2)


def told(
    reason: str = "no good",
    *,
    step: str = "main 1 parse",
    pipeline: str = "shop",
    topic: str = TOPIC,
    partition: str = "0",
    offset: str = "7",
) -> list[tuple[str, bytes | None]]:
    words = (pipeline, step, reason, topic, partition, offset, "2026-01-01T00:00:00Z")
    return [(name, word.encode()) for name, word in zip(HEADER_NAMES, words, strict=True)]


def letter(reason: str = "no good", key: bytes | None = b"k", value: bytes | None = b"v", **words: str) -> Record:
    return Record(-1, 5, key, value, (("trace", b"t"), *told(reason, **words)))


def walked(headers: list[tuple[str, bytes | None]]) -> Walked:
    return Walked(0, 3, 5, False, b"k", b"v", headers, RecordState.COMMITTED, "none", -1)


def test_the_last_set_of_headers_counts_and_is_not_sent_again() -> None:
    outer = read_letter(walked([("a", b"1"), *told("first"), *told("second", topic="x", offset="9")]))
    assert outer is not None
    assert (outer.reason, outer.source) == ("second", Source("x", 0, 9))
    assert outer.original.headers == [("a", b"1"), *told("first")]
    assert read_letter(walked([*told(), ("a", b"1")])) is None
    assert read_letter(walked([])) is None
    for damaged in ({"offset": "x"}, {"partition": "-1"}, {"topic": ""}, {"offset": "9" * 30}):
        found = read_letter(walked(told(**damaged)))  # type: ignore[arg-type]
        assert found is not None
        assert found.source is None


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ('not JSON: "hello"', "not JSON: …"),
        ('not JSON: "it said \\"x\\"" twice', "not JSON: … twice"),
        ('not JSON: "cut off', "not JSON: …"),
        ("late: the watermark was 2026-01-01T00:10:00.000+00:00", "late: the watermark was …"),
        ("price is positive", "price is positive"),
        ("column a1 has -3.5 of 10 parts", "column a1 has … of … parts"),
        ("it isn't there", "it isn't there"),
    ],
)
def test_what_differs_from_letter_to_letter_is_left_out(reason: str, kind: str) -> None:
    assert normalize_reason(reason) == kind


def test_letters_are_counted_once_and_again_after_the_log_changed() -> None:
    cluster = Cluster(2)
    cluster.logs[0].append([letter('not JSON: "a"'), letter('not JSON: "b"'), b"no letter"])
    cluster.logs[1].append([letter("rule"), letter("rule", pipeline="another")])
    tally = DeadLetterCounter(TOPIC, "shop")
    tally.update(cluster.client(), ID, 10)
    assert {(kind.reason, count.letters) for kind, count in tally.kinds.items()} == {("not JSON: …", 2), ("rule", 1)}
    assert (tally.letters, tally.other_records, tally.remaining_offsets) == (3, 2, 0)
    before = len(cluster.fetches)
    cluster.logs[0].append([letter("rule")])
    tally.update(cluster.client(), ID, 10)
    assert (tally.letters, len(cluster.fetches) - before) == (4, 1), "only what is new is read"
    tally.update(cluster.client(), OTHER_ID, 10)
    assert tally.letters == 4, "another topic of that name is counted from its start"
    cluster.logs[0].start = 3
    tally.update(cluster.client(), OTHER_ID, 10)
    assert tally.letters == 2, "what is gone is not counted"


def test_counting_stops_in_time_and_goes_on_and_open_transactions_wait() -> None:
    cluster = Cluster()
    for _ in range(8):
        cluster.logs[0].append([letter("rule")])
    cluster.logs[0].stable = 6
    tally, clock = DeadLetterCounter(TOPIC, "shop"), iter(range(1000))
    tally.update(cluster.client(), ID, 2, lambda: next(clock))
    assert 0 < tally.letters < 6
    assert tally.remaining_offsets == 6 - tally.letters
    tally.update(cluster.client(), ID, 1000, lambda: next(clock))
    assert (tally.letters, tally.remaining_offsets) == (6, 0)


def test_damaged_ranges_stay_reported() -> None:
    cluster = Cluster()
    for number in range(4):
        cluster.logs[0].append([letter(f"rule {number}")])
    cluster.logs[0].batches[1][-1] ^= 1
    tally = DeadLetterCounter(TOPIC, "shop")
    for _ in range(2):
        tally.update(cluster.client(), ID, 10)
        assert tally.letters == 3
        assert [(each.start, each.end) for each in tally.damaged] == [(1, 2)]


def test_letters_are_listed_newest_first_page_by_page() -> None:
    cluster = Cluster()
    for number in range(30):
        cluster.logs[0].append([letter("a" if number % 3 else "b", value=b"%d" % number)])
    found, positions = [], None
    for _ in range(10):
        page = list_letters(cluster.client(), TOPIC, "shop", LetterKind(reason="b"), 4, positions)
        found += [each.record.offset for each in page.letters]
        positions = page.positions
        if not page.has_more:
            break
    assert found == list(range(27, -1, -3))
    assert read_one_letter(cluster.client(), TOPIC, 0, 3) is not None
    assert read_one_letter(cluster.client(), TOPIC, 0, 30) is None


def test_pages_over_several_partitions_neither_miss_nor_repeat() -> None:
    cluster = Cluster(3)
    for number in range(60):
        cluster.logs[number % 7 % 3].append([letter("a" if number % 4 else "b")])
    there = {(partition, offset) for partition, log in enumerate(cluster.logs) for offset in range(log.end)}
    found, positions = [], None
    for _ in range(100):
        page = list_letters(cluster.client(), TOPIC, "shop", LetterKind(), 7, positions)
        found += [(each.record.partition, each.record.offset) for each in page.letters]
        positions = page.positions
        if not page.has_more:
            break
    assert len(found) == 60
    assert set(found) == there


def test_the_ends_of_a_plan_keep_out_what_came_later() -> None:
    cluster = Cluster()
    cluster.logs[0].append([letter("a"), letter("b"), letter("a")])
    plan = select_letters(cluster.client(), TOPIC, "shop", LetterFilter(LetterKind(reason="a"), 10))
    cluster.logs[0].append([letter("a")])
    chosen = select_letters(cluster.client(), TOPIC, "shop", LetterFilter(LetterKind(reason="a"), 10, plan.ends))
    assert [each.record.offset for each in chosen.letters] == [0, 2]
    cut = select_letters(cluster.client(), TOPIC, "shop", LetterFilter(LetterKind(), 2))
    assert (len(cut.letters), cut.is_cut, cut.ends) == (2, True, {0: 2})


def test_what_was_cut_off_comes_with_the_next_choice() -> None:
    cluster = Cluster(2)
    for number in range(20):
        cluster.logs[number % 2].append([letter("a" if number % 5 else "b")])
    taken: set[tuple[int, int]] = set()

    def is_taken(each: Letter) -> bool:
        return (each.record.partition, each.record.offset) in taken

    for round_number in range(4):
        choice = LetterFilter(LetterKind(reason="a"), 5, is_excluded=is_taken)
        plan = select_letters(cluster.client(), TOPIC, "shop", choice)
        again = select_letters(cluster.client(), TOPIC, "shop", choice._replace(ends=plan.ends))
        assert again.letters == plan.letters, "what the plan has shown is what is sent"
        taken |= {(each.record.partition, each.record.offset) for each in plan.letters}
        assert plan.is_cut == (round_number < 3)
    assert len(taken) == 16


def test_rare_letters_are_found_where_they_were_counted() -> None:
    cluster = Cluster(2)
    cluster.logs[1].append([letter("rare"), letter("rare")])
    for _ in range(100):
        cluster.logs[0].append([letter("common")])
        cluster.logs[1].append([letter("common")])
    tally = DeadLetterCounter(TOPIC, "shop")
    assert tally.bounds(LetterKind()) is None, "nothing was counted yet"
    tally.update(cluster.client(), ID, 10)
    rare = LetterKind(reason="rare")
    bounds = tally.bounds(rare)
    assert bounds == {1: (0, 2)}
    cluster.fetches.clear()
    page = list_letters(cluster.client(), TOPIC, "shop", rare, 50, None, bounds)
    assert ([each.record.offset for each in page.letters], page.has_more, len(cluster.fetches)) == ([1, 0], False, 1)
    cluster.fetches.clear()
    chosen = select_letters(cluster.client(), TOPIC, "shop", LetterFilter(rare, bounds=bounds))
    assert (len(chosen.letters), len(cluster.fetches)) == (2, 1)
    clock = iter(range(0, 10_000, 3))
    late = list_letters(cluster.client(), TOPIC, "shop", rare, 5, None, None, lambda: next(clock))
    assert (late.letters, late.has_more) == ([], True), "it stops in time, and the next page continues"


def test_records_go_back_to_their_partition_as_they_were() -> None:
    cluster = Cluster(3)
    cluster.logs[0].append(
        [letter(partition="2", value=b"1"), letter(partition="2", value=b"2"), letter(partition="9", key=b"21")]
    )
    chosen = select_letters(cluster.client(), TOPIC, "shop", LetterFilter())
    results = list(resend_letters(cluster.client(), chosen.letters, None))
    assert [(each.partition, each.offset, each.outcome) for each in results[:2]] == [
        (2, 0, Outcome.SENT),
        (2, 1, Outcome.SENT),
    ]
    assert results[2].partition == partition_of_key(b"21", range(3)), "there is no partition 9: the key decides"
    assert read_one_letter(cluster.client(), TOPIC, 2, 0) is None, "it is no letter any more"


def test_refused_and_unsure_letters_are_reported_one_by_one() -> None:
    cluster = Cluster()
    cluster.logs[0].append([letter(value=b"%d" % number) for number in range(4)])
    chosen = select_letters(cluster.client(), TOPIC, "shop", LetterFilter()).letters
    cluster.produce_errors = [Error.MESSAGE_TOO_LARGE, Error.MESSAGE_TOO_LARGE, Error.MESSAGE_TOO_LARGE]
    results = list(resend_letters(cluster.client(), chosen, None))  # four, two, one: refused; then one, and two
    assert [each.outcome.value for each in results] == ["refused", "sent", "sent", "sent"]
    cluster.produce_errors = [Error.REQUEST_TIMED_OUT]
    assert [each.outcome for each in resend_letters(cluster.client(), chosen, None)] == [Outcome.UNSURE] * 4
    gone = list(resend_letters(cluster.client(), chosen, "nowhere"))
    assert [each.outcome for each in gone] == [Outcome.REFUSED] * 4
    assert "nowhere does not exist" in gone[0].problem
    assert [each.outcome for each in resend_letters(cluster.client(), chosen, None, lambda: True)] == [
        Outcome.REFUSED
    ] * 4
