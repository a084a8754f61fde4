"""Fetch (key 1), v4-18: records from partition leaders.

v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 flexible, diverging epochs;
v13 topic ids instead of names; v15 replica state as a tagged field; v16 node endpoints; v17, v18 for replicas only.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.broker.context import Context
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchPartition, FetchSession, PartitionKey
from ottla.broker.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetch
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse

TOPIC_IDS_SINCE: Final = 13


def handle(request: FetchRequest, context: Context) -> FetchResponse | None:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return FetchResponse(error_code=Error.INVALID_REQUEST)
    asked = _asked_partitions(request)
    try:
        session, partitions, is_incremental = _session(request, context, asked)
    except KafkaError as error:
        return FetchResponse(error_code=error.error)
    limit = min(request.max_bytes, context.broker.settings.fetch_max_bytes)
    fetch = Fetch(
        context,
        session,
        partitions,
        is_incremental,
        min_bytes=min(request.min_bytes, limit),
        max_bytes=max(0, limit),
        is_read_committed=request.isolation_level == READ_COMMITTED,
        replica_id=request.replica_state.replica_id if request.replica_state is not None else request.replica_id,
    )
    return fetch.run(request.max_wait_ms)


def _asked_partitions(request: FetchRequest) -> list[FetchPartition]:
    asked = []
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = FetchPartition(topic.topic, topic.topic_id, wanted.partition)
            partition.ask(wanted.fetch_offset, wanted.partition_max_bytes, wanted.current_leader_epoch)
            asked.append(partition)
    return asked


def _session(
    request: FetchRequest, context: Context, asked: list[FetchPartition]
) -> tuple[FetchSession | None, list[FetchPartition], bool]:
    """The session to go on with or to start, the partitions to read, and whether only changes are answered."""
    epoch = request.session_epoch
    sessions = context.broker.fetch_sessions
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        session = sessions.start(uses_topic_ids, asked, _now(context)) if epoch == INITIAL_EPOCH else None
        return session, asked, False
    session = sessions.resume(request.session_id, epoch, uses_topic_ids, asked, _forgotten_keys(request), _now(context))
    return session, list(session.partitions.values()) if session is not None else [], True


def _forgotten_keys(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic, topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]


def _now(context: Context) -> int:
    return context.broker.clock.monotonic_ms()
