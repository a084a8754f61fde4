"""G5: committed places are the same before and after the offsets topic was compacted, and after every kill."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.group_calls import GroupCalls, find_coordinator
from tests.conformance.peer import Peer
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.transaction_calls import TransactionCalls
from tests.conformance.waiting import eventually

TOPIC = "read"
PARTITIONS = 4
GROUPS = 20
SEGMENT_BYTES = 20_000
COMMITS_A_ROUND = 400
SETTINGS = {
    "log_cleaner_backoff_ms": 50,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_initial_task_delay_ms": 50,
    "log_flush_offset_checkpoint_interval_ms": 100,
    "log_segment_delete_delay_ms": 100,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,  # what a kill leaves open is over soon
}
BrokerFactory = Callable[..., Any]
Places = dict[tuple[str, int], int]


class Committer(threading.Thread):
    """Commits rising places of many groups, a few of them in transactions, of which some are taken back."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: Places = {}
        self.tried: Places = {}  # the highest that may have been written
        self.count = 0
        self.problems: list[str] = []
        self.bootstrap = bootstrap
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Peer(self.bootstrap) as peer:
                    self._commit_all(peer)
            except (ConnectionClosedError, OSError):
                time.sleep(0.02)

    def _commit_all(self, peer: Peer) -> None:
        find_coordinator(peer, "mover", 1)
        transactions = TransactionCalls(peer, "mover")
        who = None
        while not self._stopping.is_set():
            self.count += 1
            place = (f"group-{self._random.randrange(GROUPS)}", self._random.randrange(PARTITIONS))
            if self._random.random() < 0.8:
                answer = GroupCalls(peer, place[0]).commit({TOPIC: {place[1]: self._next(place)}})
                self._note(place, answer[TOPIC][place[1]])
                continue
            try:
                who = who or transactions.start(timeout_ms=1000)
            except AssertionError:  # the coordinator is still loading
                time.sleep(0.02)
                continue
            is_commit = self._random.random() < 0.7
            offset = self._next(place) if is_commit else self.count + 1_000_000
            error = transactions.commit_offsets(who, place[0], {TOPIC: {place[1]: offset}})[TOPIC][place[1]]
            ended = transactions.end(who, commit=is_commit)
            if error == 0 and ended.error_code == 0 and is_commit:
                self._note(place, 0)
            who = type(who)(ended.producer_id, ended.producer_epoch) if ended.error_code == 0 else None

    def _next(self, place: tuple[str, int]) -> int:
        self.tried[place] = self.count
        return self.count

    def _note(self, place: tuple[str, int], error: int) -> None:
        if error == 0:
            self.acknowledged[place] = self.tried[place]

    def stop(self) -> None:
        self._stopping.set()
        self.join(20)


def places_now(bootstrap: str) -> Places:
    found: Places = {}
    with Peer(bootstrap) as peer:
        for number in range(GROUPS):
            calls = GroupCalls(peer, f"group-{number}")
            answer: Any = None

            def is_loaded() -> bool:
                nonlocal answer
                answer = calls.fetch_offsets({TOPIC: list(range(PARTITIONS))}, require_stable=True)  # noqa: B023
                return answer.error_code == 0 and not any(row.error_code for row in answer.topics[0].partitions)

            assert eventually(is_loaded, 20.0), answer
            for row in answer.topics[0].partitions:
                found[calls.group, row.partition_index] = int(row.committed_offset)
    return found


def check(broker: Any, rounds: int, seed: int) -> None:
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, PARTITIONS)
        for internal in ("__consumer_offsets", "__transaction_state"):  # with segments smaller than a setting allows
            peer.create_topic(internal, 1, cleanup_policy="compact", internal_segment_bytes=SEGMENT_BYTES)
        find_coordinator(peer, "group-0")
    log = broker.data_directory / "__consumer_offsets-0"
    cleaned = 0
    for number in range(rounds):
        committer = Committer(broker.bootstrap, seed + number)
        committer.acknowledged, committer.tried = dict(places_now(broker.bootstrap)), places_now(broker.bootstrap)
        committer.count = max(committer.tried.values()) + 1
        began_at = committer.count
        committer.start()
        cleaned += eventually(lambda: has_gap(log) and committer.count > began_at + COMMITS_A_ROUND, 10.0)  # noqa: B023
        time.sleep(0.3)
        if number % 2 == 0:
            broker.kill9()
            committer.stop()
            broker.start()
        else:
            committer.stop()
        now = places_now(broker.bootstrap)
        for place, told in committer.acknowledged.items():
            assert now[place] in (told, committer.tried[place]), (place, told, committer.tried[place], now[place])
        if number % 2:
            broker.restart()
            assert places_now(broker.bootstrap) == now
        print(f"round {number}: {committer.count - began_at} commits")
    assert cleaned >= rounds / 2, "the log was never compacted"
    broker.assert_no_traceback()


def has_gap(log: Any) -> bool:
    """Whether the cleaner was here: a closed segment is smaller than what closes one."""
    segments = sorted(log.glob("*.log"))
    return len(segments) > 1 and any(path.stat().st_size < SEGMENT_BYTES // 2 for path in segments[:-1])


def test_compaction_of_the_offsets_topic_changes_no_place(broker_factory: BrokerFactory) -> None:
    check(broker_factory(**SETTINGS), 2, 1)


@pytest.mark.faults
def test_compaction_of_the_offsets_topic_changes_no_place_in_twenty_rounds(broker_factory: BrokerFactory) -> None:
    check(broker_factory(**SETTINGS), 20, 1)
