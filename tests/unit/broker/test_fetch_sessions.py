"""The rules of KIP-227, sentence by sentence."""

from uuid import UUID

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.broker.fetch_sessions import EPOCH_MAX, EVICTION_MS, CachedPartition, FetchSessionCache

NO_ID = UUID(int=0)


def asked(topic, index=0, offset=0):
    partition = CachedPartition(topic, NO_ID, index)
    partition.update_request_params(offset, 1024, -1)
    return partition


def names(session):
    return [f"{partition.topic}-{partition.index}" for partition in session.partitions.values()]


def start(sessions, *partitions, now_ms=0):
    session = sessions.start(False, len(partitions), now_ms)
    if session is not None:
        session.update(partitions, ())
    return session


def resume(sessions, session_id, epoch, partitions=(), forgotten=(), now_ms=0, uses_topic_ids=False):
    session = sessions.resume(session_id, epoch, uses_topic_ids, now_ms)
    session.update(partitions, forgotten)
    return None if sessions.end_if_empty(session) else session


def test_a_session_remembers_its_partitions():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"))
    again = resume(sessions, session.id, 1, [asked("a", offset=7)])
    assert names(again) == ["a-0", "b-0"]
    assert again.partitions["a", NO_ID, 0].fetch_offset == 7


def test_partitions_can_be_added_and_forgotten():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"))
    assert names(resume(sessions, session.id, 1, [asked("c")], [("a", NO_ID, 0)])) == ["b-0", "c-0"]


def test_a_session_without_partitions_ends():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"))
    assert resume(sessions, session.id, 1, forgotten=[("a", NO_ID, 0)]) is None
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 2)
    assert caught.value.error is Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_without_partitions_starts_no_session():
    assert start(FetchSessionCache(10, first_id=1)) is None


def test_an_unknown_session_is_refused():
    with pytest.raises(KafkaError) as caught:
        resume(FetchSessionCache(10, first_id=1), 77, 1)
    assert caught.value.error is Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, -7])
def test_only_the_next_epoch_continues_a_session(epoch):
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"))
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, epoch)
    assert caught.value.error is Error.INVALID_FETCH_SESSION_EPOCH


def test_a_repeated_epoch_is_refused():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"))
    resume(sessions, session.id, 1)
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 1)
    assert caught.value.error is Error.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_starts_again_at_one_after_the_largest():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"))
    session.next_epoch = EPOCH_MAX
    resume(sessions, session.id, EPOCH_MAX)
    assert session.next_epoch == 1


def test_names_and_topic_ids_do_not_mix_in_one_session():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"))
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 1, uses_topic_ids=True)
    assert caught.value.error is Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_starts_no_session_while_all_are_in_use():
    sessions = FetchSessionCache(2, first_id=1)
    start(sessions, asked("a"))
    start(sessions, asked("b"))
    assert start(sessions, asked("c")) is None
    assert len(sessions) == 2


def test_a_full_cache_evicts_a_session_that_was_unused_for_long():
    sessions = FetchSessionCache(2, first_id=1)
    old = start(sessions, asked("a"))
    used = start(sessions, asked("b"))
    resume(sessions, used.id, 1, now_ms=EVICTION_MS)
    assert start(sessions, asked("c"), now_ms=EVICTION_MS + 1) is not None
    with pytest.raises(KafkaError):
        resume(sessions, old.id, 1)
    assert resume(sessions, used.id, 2) is not None


def test_a_full_cache_evicts_a_smaller_old_session_for_a_larger_one():
    sessions = FetchSessionCache(1, first_id=1)
    small = start(sessions, asked("a"))
    resume(sessions, small.id, 1, now_ms=EVICTION_MS + 1)
    assert start(sessions, asked("b"), now_ms=EVICTION_MS + 2) is None
    assert start(sessions, asked("b"), asked("c"), now_ms=EVICTION_MS + 2) is not None


def test_no_slots_means_no_sessions():
    assert start(FetchSessionCache(0, first_id=1), asked("a")) is None


def test_a_partition_that_returned_records_moves_to_the_end():
    sessions = FetchSessionCache(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"), asked("c"))
    session.move_to_end(session.partitions["a", NO_ID, 0])
    assert names(session) == ["b-0", "c-0", "a-0"]
