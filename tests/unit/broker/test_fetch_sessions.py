"""KIP-227, sentence by sentence."""

from uuid import UUID

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.broker.fetch_sessions import EPOCH_MAX, EVICTION_MS, FetchPartition, FetchSessions

NO_ID = UUID(int=0)


def asked(topic, index=0, offset=0):
    partition = FetchPartition(topic, NO_ID, index)
    partition.ask(offset, 1024, -1)
    return partition


def names(session):
    return [f"{partition.topic}-{partition.index}" for partition in session.partitions.values()]


def start(sessions, *partitions, now_ms=0):
    return sessions.start(False, list(partitions), now_ms)


def resume(sessions, session_id, epoch, partitions=(), forgotten=(), now_ms=0, uses_topic_ids=False):
    return sessions.resume(session_id, epoch, uses_topic_ids, list(partitions), list(forgotten), now_ms)


def test_a_session_remembers_its_partitions():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"))
    again = resume(sessions, session.id, 1, [asked("a", offset=7)])
    assert names(again) == ["a-0", "b-0"]
    assert again.partitions["a", NO_ID, 0].fetch_offset == 7


def test_partitions_can_be_added_and_forgotten():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"))
    assert names(resume(sessions, session.id, 1, [asked("c")], [("a", NO_ID, 0)])) == ["b-0", "c-0"]


def test_a_session_without_partitions_ends():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"))
    assert resume(sessions, session.id, 1, forgotten=[("a", NO_ID, 0)]) is None
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 2)
    assert caught.value.error is Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_without_partitions_starts_no_session():
    assert start(FetchSessions(10, first_id=1)) is None


def test_an_unknown_session_is_refused():
    with pytest.raises(KafkaError) as caught:
        resume(FetchSessions(10, first_id=1), 77, 1)
    assert caught.value.error is Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, -7])
def test_only_the_next_epoch_may_go_on(epoch):
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"))
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, epoch)
    assert caught.value.error is Error.INVALID_FETCH_SESSION_EPOCH


def test_a_repeated_epoch_is_refused():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"))
    resume(sessions, session.id, 1)
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 1)
    assert caught.value.error is Error.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_starts_again_at_one_after_the_largest():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"))
    session.next_epoch = EPOCH_MAX
    resume(sessions, session.id, EPOCH_MAX)
    assert session.next_epoch == 1


def test_names_and_topic_ids_do_not_mix_in_one_session():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"))
    with pytest.raises(KafkaError) as caught:
        resume(sessions, session.id, 1, uses_topic_ids=True)
    assert caught.value.error is Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_starts_no_session_while_all_are_in_use():
    sessions = FetchSessions(2, first_id=1)
    start(sessions, asked("a"))
    start(sessions, asked("b"))
    assert start(sessions, asked("c")) is None
    assert len(sessions) == 2


def test_a_full_cache_gives_the_slot_of_a_session_that_was_not_used_for_long():
    sessions = FetchSessions(2, first_id=1)
    old = start(sessions, asked("a"))
    used = start(sessions, asked("b"))
    resume(sessions, used.id, 1, now_ms=EVICTION_MS)
    assert start(sessions, asked("c"), now_ms=EVICTION_MS + 1) is not None
    with pytest.raises(KafkaError):
        resume(sessions, old.id, 1)
    assert resume(sessions, used.id, 2) is not None


def test_a_full_cache_gives_the_slot_of_a_smaller_old_session_to_a_larger_one():
    sessions = FetchSessions(1, first_id=1)
    small = start(sessions, asked("a"))
    resume(sessions, small.id, 1, now_ms=EVICTION_MS + 1)
    assert start(sessions, asked("b"), now_ms=EVICTION_MS + 2) is None
    assert start(sessions, asked("b"), asked("c"), now_ms=EVICTION_MS + 2) is not None


def test_no_slots_means_no_sessions():
    assert start(FetchSessions(0, first_id=1), asked("a")) is None


def test_a_partition_that_gave_records_goes_behind_the_others():
    sessions = FetchSessions(10, first_id=1)
    session = start(sessions, asked("a"), asked("b"), asked("c"))
    session.move_to_end(session.partitions["a", NO_ID, 0])
    assert names(session) == ["b-0", "c-0", "a-0"]
