"""A fetcher with a leader that is played by the test: real partitions on real logs, no sockets."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

import virtual_time
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.setting_types import LONG_MAX
from ottla.broker.replicas.replica_fetcher import ReplicaFetcher
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.broker.replicas.replication_quota import ReplicationQuota
from ottla.network.peer import PeerError
from ottla.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.quotas.shares import Windows
from ottla.replication.role import Role
from unit.broker.nodes import node
from unit.replication.stand import NOW_MS, TOPIC_ID, Stand, batch, take_bytes
from virtual_time import LoopClock

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
    """Stands for a Peer: answers fetches out of a stand, or what it was told to."""

    def __init__(self, stand):
        self.stand = stand
        self.requests = []
        self.timeouts = []
        self.answers = []  # what to answer instead: a function of the request, or an exception
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
            await asyncio.sleep(0.005)  # as a leader that holds a fetch back
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
    """Run a scene with broker 2, which follows broker 1."""
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
                quota=ReplicationQuota(clock, lambda: throttled_rate, lambda _: True, Windows()),
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


def test_a_follower_copies_its_leader_and_goes_on(play):
    async def scene(stand, leader, fetcher):
        stand.append(1, b"a")
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)
        stand.append(1, b"b")
        await until(lambda: stand.at[2].log.end_offset == 2)
        assert stand.contents(1) == stand.contents(2)
        assert stand.at[2].traffic.replication_bytes_in == len(stand.contents(1))

    play(scene)


def test_requests_are_as_the_settings_say(play):
    async def scene(stand, leader, fetcher):
        fetcher.follow(stand.at[2])
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


def test_a_lost_connection_is_made_anew_with_a_new_session(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [leader.serve, PeerError("cut", is_refused=True), PeerError("cut", is_refused=True)]
        fetcher.follow(stand.at[2])
        await until(lambda: len(leader.requests) >= 4)
        stand.append(1, b"a")
        await until(lambda: stand.at[2].log.end_offset == 1)
        assert [request.session_epoch for request in leader.requests[:4]] == [0, 1, 0, 0]

    play(scene)


def test_news_of_the_leader_end_the_wait_for_a_lost_connection(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [PeerError("cut")] * 9
        fetcher.follow(stand.at[2])
        await until(lambda: fetcher.failures >= 3)
        before = len(leader.requests)
        fetcher.wake()
        await asyncio.sleep(0.005)
        assert len(leader.requests) == before + 1

    play(scene)


def test_a_session_that_the_leader_does_not_know_is_opened_again(play):
    async def scene(stand, leader, fetcher):
        unknown = [lambda request: answer_of([], 0, Error.FETCH_SESSION_ID_NOT_FOUND)]
        leader.answers = [leader.serve, *unknown]
        fetcher.follow(stand.at[2])
        stand.append(1, b"a")
        await until(lambda: stand.at[2].log.end_offset == 1)
        await until(lambda: any(r.session_epoch == 0 for r in leader.requests[1:]))

    play(scene)


@pytest.mark.parametrize(
    "error", [Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_LEADER_EPOCH, Error.CORRUPT_MESSAGE, Error(-1)]
)
def test_a_partition_that_is_refused_tries_again(play, error):
    async def scene(stand, leader, fetcher):
        leader.answers = [refusal(error), refusal(error)]
        stand.append(1, b"a")
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)

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
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)
        assert stand.contents(1) == stand.contents(2)

    play(scene)


def test_a_log_that_parts_from_its_leaders_is_cut_first(play):
    async def scene(stand, leader, fetcher):
        stand.append(1, b"common")
        stand.catch_up(2, 1)
        stand.elect(2)
        stand.append(2, b"only here")
        stand.elect(1)
        stand.append(1, b"new", b"er")
        fetcher.follow(stand.at[2])
        await until(lambda: stand.contents(1) == stand.contents(2))

    play(scene)


def test_a_log_that_ends_before_its_leaders_starts_begins_anew(play):
    async def scene(stand, leader, fetcher):
        leader.answers = [refusal(Error.OFFSET_OUT_OF_RANGE, 7), *[lambda _: answer_of([])] * 500]
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 7)

    play(scene)


def test_a_partition_that_is_not_followed_any_more_leaves_the_session(play):
    async def scene(stand, leader, fetcher):
        other = SimpleNamespace(**vars(Followable()))
        fetcher.follow(stand.at[2])
        fetcher.plan.add(other)
        await until(lambda: len(leader.requests) > 1)
        fetcher.forget(stand.at[2])
        await until(lambda: any(request.forgotten_topics_data for request in leader.requests))

    play(scene)


class Followable:
    """A partition of another topic that never moves."""

    def __init__(self):
        self.topic_id = UUID(int=99)
        self.name = SimpleNamespace(partition=5)
        self.log = SimpleNamespace(log_start_offset=0)
        self.fetch_position = lambda: SimpleNamespace(offset=0, last_epoch=-1, leader_epoch=0)


def test_a_refused_partition_asks_again_while_the_leader_holds_a_fetch_back(play):
    """Else a new leader's high watermark, and every acks=all, waits for replica.fetch.wait.max.ms."""

    async def scene(stand, leader, fetcher):
        serve, asked_again = leader.call, asyncio.Event()

        async def hold_back(request, response, timeout_ms):
            if request.session_epoch > 0 and not asked_again.is_set():
                if any(topic.topic_id == TOPIC_ID for topic in request.topics):
                    asked_again.set()  # which ends the fetch that is held back
                await asyncio.wait_for(asked_again.wait(), 3600)
            return await serve(request, response, timeout_ms)

        leader.call = hold_back
        leader.answers = [refusal(Error.UNKNOWN_LEADER_EPOCH)]
        stand.append(1, b"a")
        fetcher.plan.add(SimpleNamespace(**vars(Followable())))
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset == 1)

    play(scene)


def test_with_flushed_acks_the_leader_hears_of_records_that_are_on_disk(play):
    async def scene(stand, leader, fetcher):
        replica = stand.at[2]
        flushes = []
        replica.flush = flushes.append
        replica.log.settings = replace(replica.log.settings, flush_messages=1)
        stand.append(1, b"a")
        fetcher.follow(replica)
        await until(lambda: replica.log.end_offset == 1)
        await asyncio.sleep(0.02)
        assert flushes
        assert stand.at[1].followers[0].end_offset == 0
        replica.log.flush()
        replica.on_flushed()
        await until(lambda: stand.at[1].followers[0].end_offset == 1)

    play(scene)


def test_a_throttled_replica_that_is_behind_waits(play):
    async def scene(stand, leader, fetcher):
        for _ in range(20):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 20
        fetcher.follow(stand.at[2])
        await until(lambda: stand.at[2].log.end_offset >= 1)
        await asyncio.sleep(0.05)
        assert stand.at[2].log.end_offset < 20

    play(scene, throttled_rate=100)


def test_the_end_of_a_pause_is_no_reason_to_fetch_more_than_the_throttle_allows(play):
    async def scene(stand, leader, fetcher):
        for _ in range(40):
            stand.append(1, b"x" * 1000)
        stand.at[1].high_watermark = 40
        fetcher.follow(stand.at[2])
        await asyncio.sleep(5)
        assert 9 <= stand.at[2].log.end_offset <= 13, "about 2,000 bytes a second, and not one fetch for each pause"

    play(scene, throttled_rate=2000)


def test_an_old_batch_that_arrives_after_a_new_role_is_not_taken(play):
    async def scene(stand, leader, fetcher):
        def late(request):
            answer = leader.serve(request)
            stand.epoch += 1
            stand.at[2].take_role(Role(3, stand.epoch, (2, 3), stand.replicas, 99), 1_000)
            return answer

        leader.answers = [late]
        stand.append(1, b"a")
        fetcher.follow(stand.at[2])
        await until(lambda: len(leader.requests) > 1)
        assert stand.at[2].log.end_offset == 0

    play(scene)


def test_each_leader_has_as_many_fetchers_as_the_settings_say(tmp_path):
    async def main():
        stand = Stand(tmp_path)
        replicas = SimpleNamespace(partitions={}, on_role=None)
        fetchers = ReplicaFetchers(node({"num.replica.fetchers": "3"}, id_=2), replicas, None, None)
        numbers = set()
        for index in range(30):
            partition = stand.at[2]
            partition.name = partition.name._replace(partition=index)
            partition.leader_id = 1
            numbers.add(fetchers._place_of(partition)[1])
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
        fetchers = ReplicaFetchers(node(SETTINGS, id_=2), replicas, membership, peers)
        followed = lambda leader: len(fetchers.fetchers[leader, 0].plan.followed)  # noqa: E731
        stand.elect(1)
        assert followed(1) == 1
        stand.elect(3)
        assert (followed(1), followed(3)) == (0, 1)
        stand.elect(2)
        assert followed(3) == 0
        stand.elect(3)
        stand.at[2].retire()
        assert followed(3) == 0
        await fetchers.stop()
        stand.close()

    virtual_time.run(main())


def test_a_produce_stays_what_it_was_for_a_single_replica(tmp_path):
    """Nothing of all this exists there."""
    stand = Stand(tmp_path, 1)
    partition = stand.elect(1)
    partition.append(batch(b"a"), True, NOW_MS)
    assert (partition.high_watermark, partition.followers) == (1, [])
    stand.close()
