"""Fetch (key 1), v4-18: records from partition leaders.

v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 flexible, diverging epochs; v13 topic
ids instead of names; v15 replica state as a tagged field; v16 node endpoints; v17, v18 for replicas only.

Followers fetch like consumers, but also get unreplicated records, and their fetch offsets advance the high watermark.
Only brokers of the cluster may fetch as followers (CVE-2018-1288).
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.broker.context import Context
from ottla.broker.delayed_fetch import READ_COMMITTED, READ_UNCOMMITTED, Answer, DelayedFetch
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, CachedPartition, FetchSession, PartitionKey
from ottla.broker.offload import TimeSlice, chunks, in_slices
from ottla.broker.quota_charges import FetchCharge
from ottla.broker.replica_manager.follower_fetch import CONSUMER, FetchingFollower, is_authorized_follower
from ottla.broker.replica_manager.replica_selection import RACK_AWARE_SELECTOR
from ottla.protocol.messages.fetch import FetchPartition as RequestedPartition
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

TOPIC_IDS_SINCE: Final = 13


def handle(request: FetchRequest, context: Context) -> Answer:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=Error.INVALID_REQUEST)
    is_held = _is_throttled(request, context)
    if is_held and request.session_epoch == INITIAL_EPOCH:
        return FetchResponse()  # an empty response creates no session: the client sends all partitions again
    asked = [_to_cached_partition(topic, wanted) for topic in request.topics for wanted in topic.partitions]
    try:
        session = _session(request, context, len(asked))
    except KafkaError as error:
        return FetchResponse(error_code=error.error)
    if session is not None:
        forgotten = [key for topic in request.forgotten_topics_data for key in _keys(topic)]
        session.update(asked, forgotten)
    return _fetch(request, context, session, asked, is_held)


async def handle_long(request: FetchRequest, context: Context) -> Answer:
    """Handle hundreds of partitions in slices; fetches of consumers are also read in slices."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=Error.INVALID_REQUEST)
    is_held = _is_throttled(request, context)
    if is_held and request.session_epoch == INITIAL_EPOCH:
        return FetchResponse()
    turn = TimeSlice()
    asked = [
        _to_cached_partition(topic, wanted)
        async for topic in in_slices(request.topics, turn)
        async for wanted in in_slices(topic.partitions, turn)
    ]
    try:
        session = _session(request, context, len(asked))
    except KafkaError as error:
        return FetchResponse(error_code=error.error)
    if session is not None:
        async for some in in_slices(chunks(asked), turn):
            session.update(some, ())
        async for topic in in_slices(request.forgotten_topics_data, turn):
            async for keys in in_slices(chunks(_keys(topic)), turn):
                session.update((), keys)
    return _fetch(request, context, session, asked, is_held)


def _is_measured(request: FetchRequest, context: Context) -> bool:
    return context.broker.quotas.is_on and _replica_id(request) == CONSUMER


def _is_throttled(request: FetchRequest, context: Context) -> bool:
    """Return whether the client's quota is used up."""
    is_last = request.session_epoch == FINAL_EPOCH
    return _is_measured(request, context) and not is_last and context.broker.quotas.is_fetch_throttled(context)


def _fetch(
    request: FetchRequest, context: Context, session: FetchSession | None, asked: list[CachedPartition], is_held: bool
) -> Answer:
    is_incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
    partitions = asked
    if is_incremental:
        assert session is not None, "an incremental fetch has a session"
        partitions = list(session.partitions.values())
        if context.broker.fetch_sessions.end_if_empty(session):
            session = None
    if is_held:
        return FetchResponse(session_id=session.id if session is not None else 0)
    quotas, is_measured = context.broker.quotas, _is_measured(request, context)
    limit = min(request.max_bytes, context.broker.settings.fetch_max_bytes)
    if is_measured:
        limit = min(limit, quotas.fetch_bytes_left(context))
    fetch = DelayedFetch(
        context,
        session,
        partitions,
        is_incremental,
        min_bytes=min(request.min_bytes, limit),
        max_bytes=max(0, limit),
        is_read_committed=request.isolation_level == READ_COMMITTED,
    )
    if is_measured:
        fetch.quota_charge = FetchCharge(context, is_client_measured=True)
    if _replica_id(request) != CONSUMER:
        context.responder.charge = None  # followers are never charged
        fetch.replica = FetchingFollower(context, _replica_id(request), _replica_epoch(request))
    elif request.rack_id and context.broker.settings.replica_selector_class == RACK_AWARE_SELECTOR:
        fetch.rack = request.rack_id
    return fetch.run(request.max_wait_ms)


def _replica_id(request: FetchRequest) -> int:
    return request.replica_state.replica_id if request.replica_state is not None else request.replica_id


def _replica_epoch(request: FetchRequest) -> int:
    return request.replica_state.replica_epoch if request.replica_state is not None else -1


def _to_cached_partition(topic: FetchTopic, wanted: RequestedPartition) -> CachedPartition:
    partition = CachedPartition(topic.topic, topic.topic_id, wanted.partition)
    partition.update_request_params(
        wanted.fetch_offset,
        wanted.partition_max_bytes,
        wanted.current_leader_epoch,
        wanted.last_fetched_epoch,
        wanted.log_start_offset,
    )
    return partition


def _session(request: FetchRequest, context: Context, size: int) -> FetchSession | None:
    """Return the session to continue or to start, without the partitions of this request."""
    epoch = request.session_epoch
    sessions = context.broker.fetch_sessions
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return sessions.resume(request.session_id, epoch, uses_topic_ids, _now(context))
    sessions.close(request.session_id)
    if epoch == FINAL_EPOCH:
        return None
    is_privileged = _replica_id(request) != CONSUMER and is_authorized_follower(context)
    return sessions.start(uses_topic_ids, size, _now(context), is_privileged)


def _keys(topic: ForgottenTopic) -> list[PartitionKey]:
    return [(topic.topic, topic.topic_id, index) for index in topic.partitions]


def _now(context: Context) -> int:
    return context.broker.clock.monotonic_ms()
