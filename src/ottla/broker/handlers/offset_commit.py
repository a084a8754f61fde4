"""OffsetCommit (key 8), v2-10: how far a group has read.

v9 also for members of the new protocol; v10 topic ids instead of names.

What one request commits is written together as long as it is of a usual size. Thousands of partitions are committed
some hundreds at a time, each time under the same checks, so that nobody else has to wait for them; Kafka refuses so
many. Every partition has an answer of its own.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.audit.noting import RESET, answer_and_note, is_reset
from ottla.broker.context import Context
from ottla.broker.coordinators.waiting_answers import start_answer
from ottla.broker.long_messages import encoded_apart
from ottla.broker.slices import PIECE_ROWS, Turn, in_slices, pieces_of
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

IDS_SINCE: Final = 10
NONE: Final = Error.NONE  # these are looked up once: an enumeration takes its time to find its members
READ: Final = Operation.READ
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC

Row = tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]


def handle(request: OffsetCommitRequest, context: Context) -> Any:
    """Mostly few partitions, all of them there: those are committed at once, together."""
    if request.generation_id_or_member_epoch < 0 and is_reset(request.group_id, context):
        return answer_and_note(RESET, commit_in_slices, request, context)
    if not is_usual(request, context):
        return commit_in_slices(request, context)
    version = context.api_version
    try:
        return context.broker.coordinators.ask_group(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.commit(request, reply_to, now_ms, version),
            is_gathered=True,
        )
    except KafkaError as error:
        answers = Answers()
        for topic in request.topics:
            answers.add_all([(topic, row) for row in topic.partitions], error.error)
        return OffsetCommitResponse(topics=list(answers.topics.values()))


def is_usual(request: OffsetCommitRequest, context: Context) -> bool:
    """Few partitions but some, of different topics that exist, and whose offsets this client may commit."""
    topics = request.topics
    may_group = context.may(READ, GROUP, request.group_id)
    if not topics or len(topics) > PIECE_ROWS or not may_group:
        return False
    rows_left = PIECE_ROWS
    for topic in topics:
        error, count = check_topic(topic, context)
        rows_left -= len(topic.partitions)
        if error is not NONE or rows_left < 0 or not topic.partitions:
            return False
        for row in topic.partitions:
            if not 0 <= row.partition_index < count:
                return False
    return len(topics) == 1 or len({topic.name for topic in topics}) == len(topics)


@encoded_apart
async def commit_in_slices(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    turn = Turn()
    answers = Answers()
    allowed = await sort_out(request, context, answers, turn)
    started: list[Future[Any]] = []
    async for piece in in_slices(pieces_of(allowed), turn):
        try:
            started.append(start_commit(request, piece, context))
        except KafkaError as error:
            answers.add_all(piece, error.error)
    for written in started:
        response = written.result() if written.done() else await written
        answers.take(response)
        if turn.is_over:
            await turn.give_way()
    return OffsetCommitResponse(topics=list(answers.topics.values()))


async def sort_out(request: OffsetCommitRequest, context: Context, answers: Answers, turn: Turn) -> list[Row]:
    """What can be committed, with names and ids of the topics; what cannot is answered."""
    may_group = context.may(READ, GROUP, request.group_id)
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
    """Why nothing of this topic can be committed, or how many partitions it has; fills in its name and its id."""
    image = context.broker.image
    has_id = context.api_version >= IDS_SINCE
    known = image.topics_by_id.get(topic.topic_id) if has_id else image.topics.get(topic.name)
    if known is not None:
        topic.name, topic.topic_id = known.name, known.topic_id
    if topic.name and not context.may(READ, TOPIC, topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED, 0
    if known is None:
        return Error.UNKNOWN_TOPIC_ID if has_id else Error.UNKNOWN_TOPIC_OR_PARTITION, 0
    return NONE, len(known.partitions)


def start_commit(request: OffsetCommitRequest, rows: Sequence[Row], context: Context) -> Future[Any]:
    """Raises KafkaError when nobody here can decide about the group."""
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
    return start_answer(
        context.broker.coordinators.groups,
        request.group_id,
        lambda machine, reply_to, now_ms: machine.commit(piece, reply_to, now_ms, version),
    )


class Answers:
    """The rows of the response, put together from several sides; a topic has one, however often it is named."""

    def __init__(self) -> None:
        self.topics: dict[str | UUID, OffsetCommitResponseTopic] = {}

    def add(self, topic: OffsetCommitRequestTopic, index: int, error: Error) -> None:
        row = OffsetCommitResponsePartition(partition_index=index, error_code=error)
        self._topic(topic.name, topic.topic_id).partitions.append(row)

    def add_all(self, rows: Sequence[Row], error: Error) -> None:
        for topic, row in rows:
            self.add(topic, row.partition_index, error)

    def take(self, response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            self._topic(topic.name, topic.topic_id).partitions += topic.partitions

    def _topic(self, name: str, topic_id: UUID) -> OffsetCommitResponseTopic:
        found = self.topics.get(name or topic_id)
        if found is None:
            found = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            self.topics[name or topic_id] = found
        return found
