"""OffsetCommit (key 8) that looks like the one before on its connection: neither decoded nor encoded.

All that is checked about any other commit is checked about these, too (offset_commit.py). If there is anything to say
against one, or anybody to be told about it, it is handled as if nobody had looked at it here.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.coordinators import refuse
from ottla.broker.responder import Responder
from ottla.groups.commit_form import CommitForm, CommitHabit, may_have_form
from ottla.protocol.codec import ProtocolError, decode, decode_whole
from ottla.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse

NONE: Final = Error.NONE  # these are looked up once: an enumeration takes its time to find its members
READ: Final = Operation.READ
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC
IDS_SINCE: Final = 10
BODY_BYTES_MAX: Final = 4_096


def handle_frame(frame: memoryview, position: int, context: Context) -> bool:
    """Whether this is such a commit: then it is under way, or answered."""
    if len(frame) - position > BODY_BYTES_MAX:
        return False
    body = frame[position:].tobytes()
    habit = context.client.commits
    if not isinstance(habit, CommitHabit):
        habit = context.client.commits = CommitHabit()
    form = habit.form
    numbers = form.numbers_in(body, context.api_version) if form is not None else None
    if form is None or numbers is None:
        if habit.is_worth_a_look():
            habit.form = form_of(body, context)
        return False
    habit.is_used = True
    return is_allowed(form, context) and is_taken(form, numbers, context)


def form_of(body: bytes, context: Context) -> CommitForm | None:
    """What the next commits of this client will look like, if this is not the last of its kind."""
    version = context.api_version
    try:
        request = decode_whole(OffsetCommitRequest, version, memoryview(body))
    except ProtocolError:
        return None
    if not may_have_form(request, version, body):
        return None
    topic = request.topics[0]
    image = context.broker.image
    known = image.topics_by_id.get(topic.topic_id) if version >= IDS_SINCE else image.topics.get(topic.name)
    if known is None:
        return None
    topic.name, topic.topic_id = known.name, known.topic_id
    return CommitForm(request, topic, version, body)


def is_allowed(form: CommitForm, context: Context) -> bool:
    """Whether the partitions are there and this client may commit them. A denial is noted by who answers it."""
    known = context.broker.image.topics.get(form.topic)
    if known is None or known.topic_id is not form.topic_id or form.index_max >= len(known.partitions):
        context.client.commits = None
        return False
    if context.broker.authorizer is None:
        return True
    return context.is_granted(READ, GROUP, form.group_id) and context.is_granted(READ, TOPIC, form.topic)


def is_taken(form: CommitForm, numbers: list[bytes], context: Context) -> bool:
    groups = context.broker.coordinators.groups
    try:
        shard = groups.shard(form.group_id, to_gather=True)
    except KafkaError:
        return False
    reply = CommitReply(context.responder, form)
    decision = shard.machine.commit_alike(form, numbers, reply.answer, groups.now_ms())
    if decision is None:
        return False
    groups.gather(shard, decision)
    context.responder.keep()
    return True


class CommitReply:
    """Who waits for such a commit to be written."""

    def __init__(self, responder: Responder, form: CommitForm) -> None:
        self._responder = responder
        self._form = form

    def answer(self, error: Error) -> None:
        form = self._form
        if error is NONE:
            self._responder.answer_well(form.answer, len(form.keys))
        else:
            response, _ = decode(OffsetCommitResponse, form.version, memoryview(form.answer))
            self._responder.answer(refuse(response, error))
