"""OffsetCommit (key 8), v2-10: commits offsets of a group.

v9 also for members of the consumer protocol; v10 topic ids instead of names.

A request of usual size is committed atomically. Thousands of partitions are committed some hundreds at a time, each
time after the same checks, to let other requests run; Kafka rejects such requests. Every partition has its own result.

A commit that equals the previous one of its connection, except for its offsets, is neither decoded nor encoded
(`handle_frame`). It passes the same checks; any error or denial falls back to normal processing.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.audit.request_auditor import OFFSETS_RESET, handle_and_audit, is_offset_reset
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import start_decision, with_write_error
from ottla.broker.offload import CHUNK_ROWS, TimeSlice, chunks, in_slices, offload_encoding
from ottla.broker.responder import Responder
from ottla.groups.commit_template import CommitTemplate, CommitTemplateCache, can_be_template
from ottla.protocol.codec import ProtocolError, decode, decode_whole
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

IDS_SINCE: Final = 10
NONE: Final = Error.NONE  # cached: attribute access of enumerations is slow
READ: Final = Operation.READ
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC

Row = tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]

BODY_BYTES_MAX: Final = 4_096


def handle(request: OffsetCommitRequest, context: Context) -> Any:
    """Commit few, existing partitions at once."""
    if request.generation_id_or_member_epoch < 0 and is_offset_reset(request.group_id, context):
        return handle_and_audit(OFFSETS_RESET, commit_in_slices, request, context)
    if not is_usual(request, context):
        return commit_in_slices(request, context)
    version = context.api_version
    try:
        return context.broker.coordinators.run_group_decision(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.offset_manager.commit(request, reply_to, now_ms, version),
            is_gathered=True,
        )
    except KafkaError as error:
        answers = ResponseBuilder()
        for topic in request.topics:
            answers.add_all([(topic, row) for row in topic.partitions], error.error)
        return OffsetCommitResponse(topics=list(answers.topics.values()))


def is_usual(request: OffsetCommitRequest, context: Context) -> bool:
    """Return whether the request has few partitions of different existing topics that the client may read."""
    topics = request.topics
    may_group = context.is_authorized(READ, GROUP, request.group_id)
    if not topics or len(topics) > CHUNK_ROWS or not may_group:
        return False
    rows_left = CHUNK_ROWS
    for topic in topics:
        error, count = check_topic(topic, context)
        rows_left -= len(topic.partitions)
        if error is not NONE or rows_left < 0 or not topic.partitions:
            return False
        for row in topic.partitions:
            if not 0 <= row.partition_index < count:
                return False
    return len(topics) == 1 or len({topic.name for topic in topics}) == len(topics)


@offload_encoding
async def commit_in_slices(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    turn = TimeSlice()
    answers = ResponseBuilder()
    allowed = await filter_invalid(request, context, answers, turn)
    started: list[Future[Any]] = []
    async for piece in in_slices(chunks(allowed), turn):
        try:
            started.append(start_commit(request, piece, context))
        except KafkaError as error:
            answers.add_all(piece, error.error)
    for written in started:
        response = written.result() if written.done() else await written
        answers.merge(response)
        if turn.is_used_up:
            await turn.yield_to_loop()
    return OffsetCommitResponse(topics=list(answers.topics.values()))


async def filter_invalid(
    request: OffsetCommitRequest, context: Context, answers: ResponseBuilder, turn: TimeSlice
) -> list[Row]:
    """Return the rows to commit, with names and ids of their topics; adds errors for all others."""
    may_group = context.is_authorized(READ, GROUP, request.group_id)
    allowed: list[Row] = []
    async for topic in in_slices(request.topics, turn):
        error, count = check_topic(topic, context) if may_group else (Error.GROUP_AUTHORIZATION_FAILED, 0)
        async for row in in_slices(topic.partitions, turn):
            if error is not NONE:
                answers.add(topic, row.partition_index, error)
            elif 0 <= row.partition_index < count:
                allowed.append((topic, row))
            else:
                answers.add(topic, row.partition_index, Error.UNKNOWN_TOPIC_OR_PARTITION)
    return allowed


def check_topic(topic: OffsetCommitRequestTopic, context: Context) -> tuple[Error, int]:
    """Return the error of a whole topic, or its number of partitions; fills in its name and id."""
    image = context.broker.image
    has_id = context.api_version >= IDS_SINCE
    known = image.topics_by_id.get(topic.topic_id) if has_id else image.topics.get(topic.name)
    if known is not None:
        topic.name, topic.topic_id = known.name, known.topic_id
    if topic.name and not context.is_authorized(READ, TOPIC, topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED, 0
    if known is None:
        return Error.UNKNOWN_TOPIC_ID if has_id else Error.UNKNOWN_TOPIC_OR_PARTITION, 0
    return NONE, len(known.partitions)


def start_commit(request: OffsetCommitRequest, rows: Sequence[Row], context: Context) -> Future[Any]:
    """Start the commit. Raises KafkaError if this broker does not coordinate the group."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for topic, row in rows:
        if topic.name not in topics:
            topics[topic.name] = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        topics[topic.name].partitions.append(row)
    piece = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=list(topics.values()),
    )
    version = context.api_version
    return start_decision(
        context.broker.coordinators.groups,
        request.group_id,
        lambda machine, reply_to, now_ms: machine.offset_manager.commit(piece, reply_to, now_ms, version),
    )


class ResponseBuilder:
    """Builds the response, with one entry per topic."""

    def __init__(self) -> None:
        self.topics: dict[str | UUID, OffsetCommitResponseTopic] = {}

    def add(self, topic: OffsetCommitRequestTopic, index: int, error: Error) -> None:
        row = OffsetCommitResponsePartition(partition_index=index, error_code=error)
        self._topic(topic.name, topic.topic_id).partitions.append(row)

    def add_all(self, rows: Sequence[Row], error: Error) -> None:
        for topic, row in rows:
            self.add(topic, row.partition_index, error)

    def merge(self, response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            self._topic(topic.name, topic.topic_id).partitions += topic.partitions

    def _topic(self, name: str, topic_id: UUID) -> OffsetCommitResponseTopic:
        found = self.topics.get(name or topic_id)
        if found is None:
            found = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            self.topics[name or topic_id] = found
        return found


def handle_frame(frame: memoryview, position: int, context: Context) -> bool:
    """Handle an undecoded commit; False if it must be decoded."""
    if len(frame) - position > BODY_BYTES_MAX:
        return False
    body = frame[position:].tobytes()
    habit = context.client.commit_form
    if not isinstance(habit, CommitTemplateCache):
        habit = context.client.commit_form = CommitTemplateCache()
    form = habit.template
    numbers = form.offset_fields_in(body, context.api_version) if form is not None else None
    if form is None or numbers is None:
        if habit.should_build_template():
            habit.template = next_commit_form(body, context)
        return False
    habit.is_used = True
    return is_allowed(form, context) and try_commit(form, numbers, context)


def next_commit_form(body: bytes, context: Context) -> CommitTemplate | None:
    """Return the expected form of the client's next commits; None if they must be decoded."""
    version = context.api_version
    try:
        request = decode_whole(OffsetCommitRequest, version, memoryview(body))
    except ProtocolError:
        return None
    if not can_be_template(request, version, body):
        return None
    topic = request.topics[0]
    image = context.broker.image
    known = image.topics_by_id.get(topic.topic_id) if version >= IDS_SINCE else image.topics.get(topic.name)
    if known is None:
        return None
    topic.name, topic.topic_id = known.name, known.topic_id
    return CommitTemplate(request, topic, version, body)


def is_allowed(form: CommitTemplate, context: Context) -> bool:
    """Return whether the partitions exist and the client may commit them. Normal processing logs denials."""
    known = context.broker.image.topics.get(form.topic)
    if known is None or known.topic_id is not form.topic_id or form.index_max >= len(known.partitions):
        context.client.commit_form = None
        return False
    if context.broker.authorizer is None:
        return True
    return context.is_granted(READ, GROUP, form.group_id) and context.is_granted(READ, TOPIC, form.topic)


def try_commit(form: CommitTemplate, numbers: list[bytes], context: Context) -> bool:
    groups = context.broker.coordinators.groups
    try:
        shard = groups.shard(form.group_id, can_batch=True)
    except KafkaError:
        return False
    reply = UndecodedCommitReply(context.responder, form)
    decision = shard.machine.offset_manager.commit_from_template(form, numbers, reply.answer, groups.now_ms())
    if decision is None:
        return False
    groups.execute_batched(shard, decision)
    context.responder.defer()
    return True


class UndecodedCommitReply:
    """Responds when an undecoded commit is written."""

    def __init__(self, responder: Responder, form: CommitTemplate) -> None:
        self._responder = responder
        self._form = form

    def answer(self, error: Error) -> None:
        form = self._form
        if error is NONE:
            self._responder.answer_encoded(form.response_body, len(form.keys))
        else:
            response, _ = decode(OffsetCommitResponse, form.version, memoryview(form.response_body))
            self._responder.answer(with_write_error(response, error))
