"""Administrative requests on their way through the broker that was asked: each is noted with what became of it.

Rules:
1. Here, and not where the controller decides: only the broker that was asked knows the client. What it passes on is
   noted here, too, once; what another broker has passed on to this one is noted there.
2. A request is answered as if nobody looked: what goes wrong here is logged, and harms nobody.
3. What an access rule refuses is a denial (trail.py) and is not told a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.broker.audit import changes, looking, security_changes
from ottla.broker.audit.changes import Asked, Describe
from ottla.broker.audit.event import Change
from ottla.broker.audit.looking import Look
from ottla.broker.cluster.forwarding import opened
from ottla.broker.long_messages import in_worker, is_long
from ottla.broker.slices import in_slices
from ottla.network.peer import SOFTWARE_NAME
from ottla.protocol.codec import EncodedBody

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.served_api import Handler
    from ottla.controller.image import MetadataImage

CREATED: Final = "topic.create"
WRITE_TXN_MARKERS: Final = 27


class Noted(NamedTuple):
    """How the requests of one API become events."""

    event: str
    describe: Describe
    look: Look | None = None  # at what the metadata do not tell, before the request changes it


NOTED: Final = {
    19: Noted(CREATED, changes.topics_created),
    20: Noted("topic.delete", changes.topics_deleted),
    21: Noted("records.delete", changes.records_deleted, looking.start_offsets),
    WRITE_TXN_MARKERS: Noted("transaction.abort", changes.transactions_aborted),
    30: Noted("acl.create", security_changes.acls_created),
    31: Noted("acl.delete", security_changes.acls_deleted),
    33: Noted("config.alter", changes.configs_altered),
    34: Noted("log.dir.alter", changes.folders_altered, looking.folders),
    37: Noted("topic.partitions", changes.partitions_created),
    38: Noted("token.create", security_changes.token_created),
    39: Noted("token.renew", security_changes.token_renewed, looking.token),
    40: Noted("token.expire", security_changes.token_expired, looking.token),
    42: Noted("group.delete", changes.groups_deleted, looking.offsets_of_groups),
    43: Noted("leader.elect", changes.leaders_elected),
    44: Noted("config.alter", changes.configs_altered, looking.levels),
    45: Noted("reassignment.alter", changes.replicas_reassigned),
    47: Noted("group.offsets.delete", changes.offsets_deleted, looking.offsets_of_group),
    49: Noted("quota.alter", security_changes.quotas_altered),
    51: Noted("user.alter", security_changes.users_altered),
    57: Noted("feature.update", changes.features_updated),
    64: Noted("broker.unregister", changes.broker_unregistered),
}
RESET: Final = Noted("group.offsets.alter", changes.offsets_altered, looking.offsets_of_group)
REFUSED: Final = frozenset(error for error in Error if error.name.endswith("_AUTHORIZATION_FAILED"))


def noted(key: int, handle: Handler) -> Handler:
    """The same handler, noted if the API changes anything."""
    how = NOTED.get(key)
    if how is None:
        return handle

    async def handle_and_note(request: Any, context: Context) -> Any:
        return await answer_and_note(how, handle, request, context)

    return handle_and_note


async def answer_and_note(how: Noted, handle: Handler, request: Any, context: Context) -> Any:
    was_wanted = is_wanted(how.event, context)
    seen = await look_before(how.look, request, context) if was_wanted and how.look is not None else {}
    before = context.broker.image
    answer = await answer_of(handle, request, context)
    # Whoever switches the trail off, or on, is in it.
    if (was_wanted or is_wanted(how.event, context)) and answer is not context.responder:
        await tasks.start(note(how, request, answer, before, seen, context), "noting a change for the audit trail")
    return answer


async def look_before(look: Look, request: Any, context: Context) -> Any:
    found: list[Any] = []

    async def work() -> None:
        found.append(await look(request, context))

    await tasks.start(work(), "looking at what will be changed, for the audit trail")
    return found[0] if found else {}


def is_wanted(event: str, context: Context) -> bool:
    audit = context.broker.audit
    if audit is None or not audit.wants(event, context.principal):
        return False
    is_coordinator = context.api_key == WRITE_TXN_MARKERS and context.client.software_name == SOFTWARE_NAME
    return not is_coordinator


async def answer_of(handle: Handler, request: Any, context: Context) -> Any:
    answer = handle(request, context)
    return await answer if asyncio.iscoroutine(answer) else answer


async def note(how: Noted, request: Any, answer: Any, before: MetadataImage, seen: Any, context: Context) -> None:
    broker = context.broker
    if isinstance(answer, EncodedBody):
        answer = await in_worker(broker.workers, opened, answer, context)
    asked = Asked(request, answer, before, broker.image, broker.settings, seen)
    if is_long(request) or is_long(answer):
        found = await in_worker(broker.workers, changes_of, how.describe, asked)
    else:
        found = changes_of(how.describe, asked)
    await tell(how.event, found, context)


def changes_of(describe: Describe, asked: Asked) -> list[Change]:
    return [change for change in describe(asked) if change.error not in REFUSED]


async def tell(event: str, found: Sequence[Change], context: Context) -> None:
    audit = context.broker.audit
    assert audit is not None, "somebody wants it"
    async for change in in_slices(found):
        audit.note_change(event, context, change)


def is_reset(group_id: str, context: Context) -> bool:
    """Whether offsets that no member commits are an administrator's, and somebody wants to know.

    Consumers that assign partitions to themselves commit in the same way, again and again; but their groups never had
    members. Of those only the first commit is taken for one.
    """
    if not is_wanted(RESET.event, context):
        return False
    try:
        machine = context.broker.coordinators.groups.shard(group_id).machine
    except KafkaError:
        return False
    group = machine.groups.get(group_id)
    if group is not None and group.protocol_type:
        return True
    return group_id in machine.consumer.groups or not machine.offsets.has_any(group_id)


async def note_created(names: Sequence[str], before: MetadataImage, context: Context) -> None:
    """Topics that came to be because somebody asked for their metadata."""
    if is_wanted(CREATED, context):
        asked = Asked(names, None, before, context.broker.image, context.broker.settings)
        found = changes_of(changes.topics_found, asked)
        await tasks.start(tell(CREATED, found, context), "noting new topics for the audit trail")
