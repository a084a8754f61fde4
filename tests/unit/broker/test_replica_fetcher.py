"""A replica fetcher with a scripted leader: real partitions on real logs, no sockets."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node
from tests.unit.replication.stand import NOW_MS, TOPIC_ID, Stand, batch, take_bytes
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.setting_types import LONG_MAX
from ottla.base.tasks import counts
from ottla.broker.replica_manager.replica_fetchers import ReplicaFetcher, ReplicaFetcherManager
from ottla.broker.replica_manager.replication_quota import ReplicationQuotaManager
from ottla.network.peer import PeerError
from ottla.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.quotas.meter_registry import Windows
from ottla.replication.leader_state import PartitionState

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "/nowhere",
    "replica.fetch.backoff.ms": "50",
    "replica.fetch.max.bytes": "11",
    "replica.fetch.min.bytes": "12",
    "replica.fetch.response.max.bytes": "13",
    "replica.fetch.wait.max.ms": "14",
    "replica.socket.timeout.ms": "15",
}


class Leader:
    """A fake Peer: answers fetches from a stand, or with scripted responses."""

    def __init__(self, stand):
        self.stand = stand
        self.requests = []
        self.timeouts = []
        self.answers = []  # responses to return instead: a function of the request, or an exception
        self.session_id = 5
        self.known = {}
        self.is_closed = False

    async def call(self, request, _, timeout_ms):
        self.requests.append(request)
        self.timeouts.append(timeout_ms)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else self.serve
        if isinstance(answer, Exception):
            raise answer
        result = answer(request)
        if not any(topic.partitions for topic in result.responses):
            await asyncio.sleep(0.005)  # like a leader that holds a fetch back
        return result

    def serve(self, request):
        for topic in request.topics:
            for asked in topic.partitions:
                self.known[asked.partition] = asked
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.known.pop(index, None)
        found = []
        for index, asked in self.known.items():
            read = self.stand.at[1].read_for_replica(
                2, 102, asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch, 1000, True, 1_000
            )
            data = PartitionData(partition_index=index, high_watermark=read.high_watermark, log_start_offset=0)
            if read.diverging is not None:
                data.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
            elif read.file_range is not None:
                data.records = take_bytes(read)
            else:
                continue
            found.append(data)
        return answer_of(found, self.session_id)

    def close(self):
        self.is_closed = True


def answer_of(found, session_id=5, error=Error.NONE):
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)] if found else []
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def refusal(error, log_start_offset=-1):
    data = PartitionData(partition_index=0, error_code=error, high_watermark=-1, log_start_offset=log_start_offset)
    return lambda request: answer_of([data])


@pytest.fixture
def play(tmp_path):
    """Run a scenario with broker 2, which follows broker 1."""
    stand = Stand(tmp_path)
    settings = BrokerSettings(SETTINGS)

    def run(scene, throttled_rate=LONG_MAX):
        async def main():
            leader = Leader(stand)
            clock = LoopClock()
            broker = SimpleNamespace(
                node_id=2,
                clock=clock,
                settings=settings,
                broker_epoch=102,
                quota=ReplicationQuotaManager(clock, lambda: throttled_rate, lambda _: True, Windows()),
                open=lambda leader_id, number: leader,
            )
            stand.elect(1)
            fetcher = ReplicaFetcher(broker, 1, 0)
            try:
                await scene(stand, leader, fetcher)
            finally:
                fetcher.stop()
                await asyncio.sleep(0)

        virtual_time.run(main())

    yield run
    stand.close()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_follower_copies_its_leader_continuously(play):
    async def scene(stand, leader, fetcher):
        stand.append(1, b"a")
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)
        stand.append(1, b"b")
        await until(lambda: stand.at[2].log.end_offset == 2)
        assert stand.contents(1) == stand.contents(2)
        assert stand.at[2].traffic.replication_bytes_in == len(stand.contents(1))

    play(scene)


def test_requests_follow_the_settings(play):
    async def scene(stand, leader, fetcher):
        fetcher.add_partition(stand.at[2])
        await until(lambda: len(leader.requests) > 2)
        first, second = leader.requests[:2]
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, 102)
        assert (first.min_bytes, first.max_bytes) == (12, 13)
        assert first.topics[0].partitions[0].partition_max_bytes == 11
        assert (first.max_wait_ms, second.max_wait_ms) == (0, 14)
        assert leader.timeouts[1] == 15
        assert (first.session_id, first.session_epoch) == (0, 0)
        assert (second.session_id, second.session_epoch, second.topics) == (5, 1, [])

    play(scene)


def test_a_lost_connection_is_replaced_with_a_new_session(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [leader.serve, PeerError("cut", is_refused=True), PeerError("cut", is_refused=True)]
        fetcher.add_partition(stand.at[2])
        await until(lambda: len(leader.requests) >= 4)
        stand.append(1, b"a")
        await until(lambda: stand.at[2].log.end_offset == 1)
        assert [request.session_epoch for request in leader.requests[:4]] == [0, 1, 0, 0]

    play(scene)


def test_a_restarted_leader_ends_the_pause_after_a_lost_connection(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [PeerError("cut")] * 9
        fetcher.add_partition(stand.at[2])
        await until(lambda: fetcher.failures >= 3)
        before = len(leader.requests)
        fetcher.wake()
        await asyncio.sleep(0.005)
        assert len(leader.requests) == before + 1

    play(scene)


def test_an_unknown_session_is_opened_again(play):
    async def scene(stand, leader, fetcher):
        unknown = [lambda request: answer_of([], 0, Error.FETCH_SESSION_ID_NOT_FOUND)]
        leader.answers = [leader.serve, *unknown]
        fetcher.add_partition(stand.at[2])
        stand.append(1, b"a")
        await until(lambda: stand.at[2].log.end_offset == 1)
        await until(lambda: any(r.session_epoch == 0 for r in leader.requests[1:]))

    play(scene)


@pytest.mark.parametrize(
    "error", [Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_LEADER_EPOCH, Error.CORRUPT_MESSAGE, Error(-1)]
)
def test_a_refused_partition_is_retried(play, error):
    async def scene(stand, leader, fetcher):
        leader.answers = [refusal(error), refusal(error)]
        stand.append(1, b"a")
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)

    play(scene)


UNKNOWN_CODE = 9_999  # of a newer broker


def test_unknown_error_codes_are_errors_as_any_other(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [refusal(UNKNOWN_CODE), lambda request: answer_of([], 0, UNKNOWN_CODE), leader.serve]
        stand.append(1, b"a")
        fetcher.add_partition(stand.at[2])
        restarts = counts.restarted
        await until(lambda: stand.at[2].log.end_offset == 1)
        assert counts.restarted == restarts

    play(scene)


def test_a_damaged_batch_is_fetched_again(play):
    async def scene(stand, leader, fetcher):
        def damage(request):
            answer = leader.serve(request)
            data = answer.responses[0].partitions[0]
            damaged = bytearray(data.records)
            damaged[-1] ^= 1
            data.records = memoryview(damaged)
            return answer

        leader.answers = [damage]
        stand.append(1, b"a")
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)
        assert stand.contents(1) == stand.contents(2)

    play(scene)


def test_a_diverging_log_is_truncated_first(play):
    async def scene(stand, leader, fetcher):
        stand.append(1, b"common")
        stand.catch_up(2, 1)
        stand.elect(2)
        stand.append(2, b"only here")
        stand.elect(1)
        stand.append(1, b"new", b"er")
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.contents(1) == stand.contents(2))

    play(scene)


def test_a_log_that_ends_before_its_leaders_start_is_restarted(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [refusal(Error.OFFSET_OUT_OF_RANGE, 7), *[lambda _: answer_of([])] * 500]
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 7)

    play(scene)


def test_a_removed_partition_leaves_the_session(play):
    async def scene(stand, leader, fetcher):
        other = SimpleNamespace(**vars(Followable()))
        fetcher.add_partition(stand.at[2])
        fetcher.plan.add(other)
        await until(lambda: len(leader.requests) > 1)
        fetcher.remove_partition(stand.at[2])
        await until(lambda: any(request.forgotten_topics_data for request in leader.requests))

    play(scene)


class Followable:
    """A partition of another topic that never changes."""

    def __init__(self):
        self.topic_id = UUID(int=99)
        self.name = SimpleNamespace(partition=5)
        self.log = SimpleNamespace(log_start_offset=0)
        self.fetch_position = lambda: SimpleNamespace(offset=0, last_epoch=-1, leader_epoch=0)


def test_a_refused_partition_is_retried_while_the_leader_holds_a_fetch_back(play):
    """Otherwise a new leader's high watermark, and every acks=all, waits for replica.fetch.wait.max.ms."""

    async def scene(stand, leader, fetcher):
        serve, asked_again = leader.call, asyncio.Event()

        async def hold_back(request, response, timeout_ms):
            if request.session_epoch > 0 and not asked_again.is_set():
                if any(topic.topic_id == TOPIC_ID for topic in request.topics):
                    asked_again.set()  # which completes the held-back fetch
                await asyncio.wait_for(asked_again.wait(), 3600)
            return await serve(request, response, timeout_ms)

        leader.call = hold_back
        leader.answers = [refusal(Error.UNKNOWN_LEADER_EPOCH)]
        stand.append(1, b"a")
        fetcher.plan.add(SimpleNamespace(**vars(Followable())))
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)

    play(scene)


def test_with_flushed_acks_only_flushed_records_are_reported_to_the_leader(play):
    async def scene(stand, leader, fetcher):
        replica = stand.at[2]
        flushes = []
        replica.flush = flushes.append
        replica.log.settings = replace(replica.log.settings, flush_messages=1)
        stand.append(1, b"a")
        fetcher.add_partition(replica)
        await until(lambda: replica.log.end_offset == 1)
        await asyncio.sleep(0.02)
        assert flushes
        assert stand.at[1].followers[0].log_end_offset == 0
        replica.log.flush()
        replica.on_flushed()
        await until(lambda: stand.at[1].followers[0].log_end_offset == 1)

    play(scene)


def test_a_throttled_replica_that_is_behind_waits(play):
    async def scene(stand, leader, fetcher):
        for _ in range(20):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 20
        fetcher.add_partition(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset >= 1)
        await asyncio.sleep(0.05)
        assert stand.at[2].log.end_offset < 20

    play(scene, throttled_rate=100)


def test_the_end_of_a_delay_does_not_exceed_the_throttle(play):
    async def scene(stand, leader, fetcher):
        for _ in range(40):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 40
        fetcher.add_partition(stand.at[2])
        await asyncio.sleep(5)
        assert 9 <= stand.at[2].log.end_offset <= 13, "about 2,000 bytes a second, not one fetch per delay"

    play(scene, throttled_rate=2000)


def test_a_flush_does_not_exceed_the_throttle(play):
    """Regression: with flush.messages=1 every response was followed by a fetch, and the whole partition was copied at
    once.
    """

    async def scene(stand, leader, fetcher):
        replica = stand.at[2]
        replica.log.settings = replace(replica.log.settings, flush_messages=1)

        def flush(flushed):
            flushed.log.flush()
            asyncio.get_running_loop().call_soon(flushed.on_flushed)

        replica.flush = flush
        for _ in range(20):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 20
        fetcher.add_partition(replica)
        await asyncio.sleep(5)
        assert replica.log.end_offset == 1, "one response, which uses up the whole window"

    play(scene, throttled_rate=1)


def test_a_new_role_does_not_exceed_the_throttle(play):
    """Regression: whenever another replica joined the ISR, a throttled one got one more response."""

    async def scene(stand, leader, fetcher):
        replica = stand.at[2]
        replica.on_state_change = fetcher.add_partition
        for _ in range(20):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 20
        fetcher.add_partition(replica)
        await until(lambda: replica.log.end_offset == 1)
        for isr in ((1, 3), (1,), (1, 3), (1,)):
            stand.change_isr(1, isr)
            await asyncio.sleep(1)
        assert replica.log.end_offset == 1

    play(scene, throttled_rate=1)


def test_a_new_replica_waits_when_others_have_used_up_the_throttle(play):
    """Before its first response its lag is unknown, but it is out of sync."""

    async def scene(stand, leader, fetcher):
        stand.change_isr(1, (1,))
        for _ in range(20):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 20
        fetcher._broker.quota.record(None, 10**6)
        fetcher.add_partition(stand.at[2])
        await asyncio.sleep(5)
        assert stand.at[2].log.end_offset == 0
        await asyncio.sleep(7)
        assert stand.at[2].log.end_offset == 1, "when it has left the windows"

    play(scene, throttled_rate=1)


def test_an_in_sync_replica_is_not_throttled_before_its_first_response(play):
    async def scene(stand, leader, fetcher):
        assert 2 in stand.at[2].isr
        stand.append(1, b"x" * 1000)
        fetcher._broker.quota.record(None, 10**6)
        fetcher.add_partition(stand.at[2])
        await asyncio.sleep(0.1)
        assert stand.at[2].log.end_offset == 1

    play(scene, throttled_rate=1)


def test_a_late_batch_is_not_appended_after_a_new_role(play):
    async def scene(stand, leader, fetcher):
        def late(request):
            answer = leader.serve(request)
            stand.epoch += 1
            stand.at[2].apply_state(PartitionState(3, stand.epoch, (2, 3), stand.replicas, 99), 1_000)
            return answer

        leader.answers = [late]
        stand.append(1, b"a")
        fetcher.add_partition(stand.at[2])
        await until(lambda: len(leader.requests) > 1)
        assert stand.at[2].log.end_offset == 0

    play(scene)


def test_each_leader_has_the_configured_number_of_fetchers(tmp_path):
    async def main():
        stand = Stand(tmp_path)
        replicas = SimpleNamespace(partitions={}, on_role=None)
        fetchers = ReplicaFetcherManager(node({"num.replica.fetchers": "3"}, id_=2), replicas, None, None)
        numbers = set()
        for index in range(30):
            partition = stand.at[2]
            partition.name = partition.name._replace(partition=index)
            partition.leader_id = 1
            numbers.add(fetchers._fetcher_key(partition)[1])
        stand.close()
        assert numbers == {0, 1, 2}

    virtual_time.run(main())


def unreachable(broker_id, _):
    raise PeerError(f"broker {broker_id} is not known")


def test_fetchers_follow_the_roles_of_partitions(tmp_path):
    async def main():
        stand = Stand(tmp_path)
        replicas = SimpleNamespace(partitions={0: stand.at[2]}, on_role=None)
        membership, peers = SimpleNamespace(broker_epoch=-1), SimpleNamespace(open=unreachable)
        fetchers = ReplicaFetcherManager(node(SETTINGS, id_=2), replicas, membership, peers)
        followed = lambda leader: len(fetchers.fetchers[leader, 0].plan.followed)  # noqa: E731
        stand.elect(1)
        assert followed(1) == 1
        stand.elect(3)
        assert (followed(1), followed(3)) == (0, 1)
        stand.elect(2)
        assert followed(3) == 0
        stand.elect(3)
        stand.at[2].close()
        assert followed(3) == 0
        await fetchers.stop()
        stand.close()

    virtual_time.run(main())


def test_a_produce_with_a_single_replica_needs_no_followers(tmp_path):
    """A standalone partition has no replication state."""
    stand = Stand(tmp_path, 1)
    partition = stand.elect(1)
    partition.append(batch(b"a"), True, NOW_MS)
    assert (partition.high_watermark, partition.followers) == (1, [])
    stand.close()
