"""A producer and a consumer in virtual time, and the monitor's view of their commits and the log end offsets."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.monitor.lag_evaluation import Commit, GroupVerdict, Status
from ottla.monitor.offset_store import OffsetStore, TopicFacts

START_MS = 1_700_000_000_000
STEP_MS = 100
LOOK_MS = 500  # polling interval of the monitor
REFRESH_MS = 10_000
TOPIC = "orders"

At = Callable[[float], float]  # records after so many seconds


class Scene(NamedTuple):
    """A scenario: records written and read over time, and the times of commits."""

    written: At
    read: At
    commit_s: float
    commits_same: bool = False  # Java's consumer does, librdkafka does not
    stable: At | None = None  # where the first open transaction begins
    monitor_from_s: float = 0.0
    seed: int = 0
    has_marker: bool = False  # the last offset is no record


def statuses(scene: Scene, seconds: float) -> Iterator[tuple[float, Status]]:
    """Our verdict every half second."""
    for now_s, found in verdicts(scene, seconds):
        yield now_s, found.ottla_status if found is not None else Status.OK


def verdicts(scene: Scene, seconds: float) -> Iterator[tuple[float, GroupVerdict | None]]:
    chance = Random(scene.seed)
    store = OffsetStore("default")
    store.set_topics({TOPIC: TopicFacts(UUID(int=1), 1)})
    place = TopicPartition(TOPIC, 0)
    commit_ms = int(scene.commit_s * 1_000)
    next_commit_ms = chance.randrange(1, commit_ms + 1)
    next_refresh_ms = chance.randrange(REFRESH_MS)
    committed, coming, number = -1, list[tuple[int, int, int]](), 0
    started_ms = int(scene.monitor_from_s * 1_000)
    for now_ms in range(0, int(seconds * 1_000), STEP_MS):
        now_s, clock_ms = now_ms / 1_000, START_MS + now_ms
        if now_ms >= next_commit_ms:
            next_commit_ms += commit_ms
            offset = int(min(scene.read(now_s), (scene.stable or scene.written)(now_s)))
            if offset != committed or scene.commits_same:
                committed = offset
                coming.append((clock_ms + chance.randrange(50, 300), offset, clock_ms))
        if now_ms < started_ms:
            continue
        while coming and coming[0][0] <= clock_ms:
            number += 1
            _, offset, at_ms = coming.pop(0)
            store.add_commit("billing", place, Commit(offset, at_ms, None, number), clock_ms)
        if now_ms % LOOK_MS:
            continue
        if now_ms >= next_refresh_ms or place in store.without_recent_end:
            next_refresh_ms = max(next_refresh_ms, now_ms) + REFRESH_MS
            store.add_end(place, int(scene.written(now_s)), clock_ms)
        for each in store.due_stable_ends(clock_ms):
            store.add_stable_end(each, int((scene.stable or scene.written)(now_s)), clock_ms)
        for each, offset in store.pending_first_unread(10).items():
            store.add_first_unread(each, offset, _written_ms(scene, offset, now_s), is_known=True)
        yield now_s, store.verdict("billing", clock_ms)


def _written_ms(scene: Scene, offset: int, now_s: float) -> int | None:
    """When the record at this offset was written."""
    before, after = 0.0, now_s
    if scene.written(now_s) - scene.has_marker <= offset:
        return None
    while after - before > 0.01:
        middle = (before + after) / 2
        before, after = (middle, after) if scene.written(middle) <= offset else (before, middle)
    return START_MS + int(after * 1_000)


def first_not_ok(scene: Scene, seconds: float) -> float | None:
    """When the group was not OK for the first time."""
    return next((at_s for at_s, status in statuses(scene, seconds) if status > Status.OK), None)


def steady(rate: float) -> At:
    return lambda now_s: rate * now_s


def in_batches(rate: float, every_s: float) -> At:
    return lambda now_s: rate * every_s * (now_s // every_s)


def saw_tooth(rate: float, period_s: float, shift_s: float) -> At:
    """Reads nothing, and to the end once in a period."""
    return lambda now_s: max(0.0, rate * (period_s * ((now_s + shift_s) // period_s) - shift_s))
