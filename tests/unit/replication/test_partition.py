"""A partition of a single broker on a real log in a temporary folder."""

from uuid import UUID

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import Record, build_batch
from ottla.replication.partition import Partition
from ottla.replication.role import Role
from ottla.replication.waiting import WaitingFetch, WaitingProduce
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import create_log

NOW_MS = 1_700_000_000_000
ME = 1


@pytest.fixture
def make(tmp_path):
    made = []

    def make_partition(in_sync=(ME,), **settings):
        name = TopicPartition("t", len(made))
        folder = tmp_path / str(name)
        log = create_log(name, str(folder), TopicSettings(**settings), DescriptorPool(64), None, NOW_MS, 86_400_000)
        partition = Partition(name, UUID(int=7), log, ME)
        partition.take_role(Role(ME, 0, in_sync, in_sync), 0)
        made.append(partition)
        return partition

    yield make_partition
    for partition in made:
        partition.log.abandon()


def batch(*values):
    records = [Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)]
    return memoryview(build_batch(records))


def waiting(missing=1):
    woken = []
    return WaitingFetch(missing, lambda: woken.append(True)), woken


def test_alone_in_the_isr_the_high_watermark_is_the_end_of_the_log(make):
    partition = make()
    appended = partition.append(batch(b"a", b"b"), True, NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert partition.high_watermark == partition.log.end_offset == 2


def test_with_followers_records_stay_invisible_until_they_have_them(make):
    partition = make(in_sync=(ME, 2))
    partition.append(batch(b"a"), True, NOW_MS)
    assert partition.high_watermark == 0
    assert partition.read(0, 1000, True, False) is None


def test_acks_all_is_refused_when_too_few_replicas_are_in_sync(make):
    partition = make(min_insync_replicas=2)
    partition.take_role(Role(ME, 0, (ME,), (ME, 2, 3), 1), 0)
    with pytest.raises(KafkaError) as caught:
        partition.append(batch(b"a"), True, NOW_MS)
    assert caught.value.error is Error.NOT_ENOUGH_REPLICAS
    assert partition.append(batch(b"a"), False, NOW_MS).base_offset == 0


def test_no_more_replicas_must_be_in_sync_than_there_are(make):
    partition = make(min_insync_replicas=2)
    partition.take_role(Role(ME, 0, (ME,), (ME,), 1), 0)
    assert partition.append(batch(b"a"), True, NOW_MS).base_offset == 0


def test_only_the_leader_appends(make):
    partition = make()
    partition.take_role(Role(2, 1, (2,), (2,)), 0)
    with pytest.raises(KafkaError) as caught:
        partition.append(batch(b"a"), False, NOW_MS)
    assert caught.value.error is Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("known", "error"), [(4, Error.FENCED_LEADER_EPOCH), (6, Error.UNKNOWN_LEADER_EPOCH), (5, None), (-1, None)]
)
def test_a_client_with_another_leader_epoch_is_told(make, known, error):
    partition = make()
    partition.take_role(Role(ME, 5, (ME,), (ME,)), 0)
    if error is None:
        partition.require_leader(known)
        return
    with pytest.raises(KafkaError) as caught:
        partition.require_leader(known)
    assert caught.value.error is error


def test_an_older_decision_of_a_controller_is_ignored(make):
    partition = make()
    partition.take_role(Role(ME, 5, (ME,), (ME,)), 0)
    partition.take_role(Role(2, 4, (2,), (2,)), 0)
    assert partition.is_leader


def test_an_append_wakes_the_fetches_that_wait(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == [True]


def test_a_fetch_waits_until_enough_bytes_came(make):
    partition = make()
    fetch, woken = waiting(missing=100)
    partition.wait_for_records(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == []
    partition.append(batch(b"b"), False, NOW_MS)
    assert woken == [True]


def test_a_forgotten_fetch_is_not_woken(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.forget(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == []


def test_who_waits_is_told_when_the_partition_goes(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.retire()
    assert woken == [True]
    with pytest.raises(KafkaError):
        partition.require_leader(-1)


def test_flush_messages_holds_records_back_until_they_are_on_disk(make):
    partition = make(flush_messages=1)
    flushes = []
    partition.flush = flushes.append
    partition.append(batch(b"a"), True, NOW_MS)
    assert flushes == [partition]
    assert not partition.is_replicated(0)
    answered = []
    partition.wait_for_replication(0, WaitingProduce(1, lambda: answered.append(True)))
    partition.log.flush()
    partition.on_flushed()
    assert answered == [True]
    assert partition.high_watermark == 1
    assert not partition.is_flushing


def test_records_that_came_during_a_flush_wait_for_the_next_one(make):
    partition = make(flush_messages=1)
    flushes = []
    partition.flush = flushes.append
    partition.append(batch(b"a"), True, NOW_MS)
    job = partition.log.begin_flush()
    partition.append(batch(b"b"), True, NOW_MS)
    job.run()
    partition.log.end_flush(job)
    partition.on_flushed()
    assert partition.high_watermark == 1
    assert len(flushes) == 2
    partition.log.flush()
    partition.on_flushed()
    assert partition.high_watermark == 2
