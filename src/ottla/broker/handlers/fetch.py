"""Fetch (key 1), v4-18: records from partition leaders.

v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 flexible, diverging epochs;
v13 topic ids instead of names; v15 replica state as a tagged field; v16 node endpoints; v17, v18 for replicas only.

Followers fetch like consumers, but get what is not replicated yet, and what they ask for tells the leader how far they
are: only brokers of the cluster may say that they are one (CVE-2018-1288).
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.broker.context import Context
from ottla.broker.fetch_quota import FetchMeasure
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchPartition, FetchSession, PartitionKey
from ottla.broker.fetching import READ_COMMITTED, READ_UNCOMMITTED, Answer, Fetch
from ottla.broker.replicas.replica_reading import CONSUMER, FetchingReplica, may_replicate
from ottla.broker.replicas.replica_selection import RACK_AWARE_SELECTOR
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.messages.fetch import FetchPartition as RequestedPartition
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic

TOPIC_IDS_SINCE: Final = 13


def handle(request: FetchRequest, context: Context) -> Answer:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=Error.INVALID_REQUEST)
    return _fetch(request, context, [_asked(topic, wanted) for topic in request.topics for wanted in topic.partitions])


async def handle_long(request: FetchRequest, context: Context) -> Answer:
    """The same for hundreds of partitions; a consumer's are read in slices, too."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=Error.INVALID_REQUEST)
    turn = Turn()
    asked = [
        _asked(topic, wanted)
        async for topic in in_slices(request.topics, turn)
        async for wanted in in_slices(topic.partitions, turn)
    ]
    return _fetch(request, context, asked)


def _fetch(request: FetchRequest, context: Context, asked: list[FetchPartition]) -> Answer:
    quotas = context.broker.quotas
    is_measured = quotas.is_on and _replica_id(request) == CONSUMER
    is_held = is_measured and request.session_epoch != FINAL_EPOCH and quotas.holds_fetch(context)
    if is_held and request.session_epoch == INITIAL_EPOCH:
        return FetchResponse()  # an empty answer begins no session: all partitions are asked for again
    try:
        session, partitions, is_incremental = _session(request, context, asked)
    except KafkaError as error:
        return FetchResponse(error_code=error.error)
    if is_held:
        return FetchResponse(session_id=session.id if session is not None else 0)
    limit = min(request.max_bytes, context.broker.settings.fetch_max_bytes)
    if is_measured:
        limit = min(limit, quotas.fetch_bytes_left(context))
    fetch = Fetch(
        context,
        session,
        partitions,
        is_incremental,
        min_bytes=min(request.min_bytes, limit),
        max_bytes=max(0, limit),
        is_read_committed=request.isolation_level == READ_COMMITTED,
    )
    if is_measured:
        fetch.measure = FetchMeasure(context, is_client_measured=True)
    if _replica_id(request) != CONSUMER:
        context.responder.charge = None  # no quota is about followers
        fetch.replica = FetchingReplica(context, _replica_id(request), _replica_epoch(request))
    elif request.rack_id and context.broker.settings.replica_selector_class == RACK_AWARE_SELECTOR:
        fetch.rack = request.rack_id
    return fetch.run(request.max_wait_ms)


def _replica_id(request: FetchRequest) -> int:
    return request.replica_state.replica_id if request.replica_state is not None else request.replica_id


def _replica_epoch(request: FetchRequest) -> int:
    return request.replica_state.replica_epoch if request.replica_state is not None else -1


def _asked(topic: FetchTopic, wanted: RequestedPartition) -> FetchPartition:
    partition = FetchPartition(topic.topic, topic.topic_id, wanted.partition)
    partition.ask(
        wanted.fetch_offset,
        wanted.partition_max_bytes,
        wanted.current_leader_epoch,
        wanted.last_fetched_epoch,
        wanted.log_start_offset,
    )
    return partition


def _session(
    request: FetchRequest, context: Context, asked: list[FetchPartition]
) -> tuple[FetchSession | None, list[FetchPartition], bool]:
    """The session to go on with or to start, the partitions to read, and whether only changes are answered."""
    epoch = request.session_epoch
    sessions = context.broker.fetch_sessions
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        if epoch == FINAL_EPOCH:
            return None, asked, False
        is_privileged = _replica_id(request) != CONSUMER and may_replicate(context)
        return sessions.start(uses_topic_ids, asked, _now(context), is_privileged), asked, False
    session = sessions.resume(request.session_id, epoch, uses_topic_ids, asked, _forgotten_keys(request), _now(context))
    return session, list(session.partitions.values()) if session is not None else [], True


def _forgotten_keys(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic, topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]


def _now(context: Context) -> int:
    return context.broker.clock.monotonic_ms()
