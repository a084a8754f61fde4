"""Auditing of administrative requests with their results.

Rules:
1. The broker that received the request audits it, not the controller: only this broker knows the client. A forwarded
   request is audited once, by the broker that forwarded it.
2. Auditing never changes a response: its failures are only logged.
3. A request rejected by an ACL is a denial (trail.py) and is not audited again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.broker.audit import resource_changes
from ottla.broker.audit.event import Change
from ottla.broker.audit.resource_changes import AuditedRequest, Describe
from ottla.broker.cluster.forwarding import call_handler, decode_if_encoded
from ottla.broker.configs.config_admin import logger_levels
from ottla.broker.offload import TimeSlice, in_slices, is_long, run_in_worker
from ottla.controller.decisions.config_changes import ConfigResourceType
from ottla.groups.offsets import unpack_offset
from ottla.network.peer import SOFTWARE_NAME
from ottla.protocol.codec import EncodedBody

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.served_api import Handler
    from ottla.controller.image import MetadataImage


StateReader = Callable[[Any, "Context"], Awaitable[Any]]

TOPIC_CREATED: Final = "topic.create"
WRITE_TXN_MARKERS: Final = 27

AUTHORIZATION_ERRORS: Final = frozenset(error for error in Error if error.name.endswith("_AUTHORIZATION_FAILED"))


async def read_log_start_offsets(request: Any, context: Context) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    turn = TimeSlice()
    for topic in request.topics:
        async for row in in_slices(topic.partitions, turn):
            partition = context.broker.replicas.get(topic.name, row.partition_index)
            if partition is not None:
                found.setdefault(topic.name, {})[row.partition_index] = partition.log.log_start_offset
    return found


async def read_log_dirs(request: Any, context: Context) -> dict[tuple[str, int], str]:
    replicas = context.broker.replicas
    turn = TimeSlice()
    return {
        (topic.name, index): replicas.log_dirs.log_dir_of(partition.log).path
        for folder in request.dirs
        for topic in folder.topics
        async for index in in_slices(topic.partitions, turn)
        if (partition := replicas.get(topic.name, index)) is not None
    }


async def read_log_levels(request: Any, _: Context) -> dict[str, str]:
    is_asked = any(resource.resource_type == ConfigResourceType.BROKER_LOGGER for resource in request.resources)
    return logger_levels() if is_asked else {}


async def read_group_offsets(request: Any, context: Context) -> dict[str, dict[str, dict[str, int]]]:
    return {group: committed_offsets(group, context) async for group in in_slices(request.groups_names)}


async def read_offsets_of_request_group(request: Any, context: Context) -> dict[str, dict[str, int]]:
    return committed_offsets(request.group_id, context)


def committed_offsets(group: str, context: Context) -> dict[str, dict[str, int]]:
    """Return the committed offsets of a group, by topic and partition."""
    try:
        topics = context.broker.coordinators.groups.shard(group).machine.offsets.topics(group)
    except KafkaError:  # the coordinator is on another broker or not ready: the request will also fail
        return {}
    return {
        topic: {str(index): unpack_offset(kept).offset for index, kept in partitions.items()}
        for topic, partitions in topics.items()
    }


async def read_token_id(request: Any, context: Context) -> dict[str, str | None]:
    """Return the token id of an HMAC; the HMAC itself is never stored."""
    tokens = context.broker.delegation_tokens
    return {"token_id": await tokens.id_of(bytes(request.hmac))} if tokens.is_enabled else {}


class AuditedApi(NamedTuple):
    """How requests of one API become events."""

    event: str
    describe: Describe
    read_state: StateReader | None = None  # reads state that the metadata lack, before the request changes it


AUDITED_APIS: Final = {
    19: AuditedApi(TOPIC_CREATED, resource_changes.topics_created),
    20: AuditedApi("topic.delete", resource_changes.topics_deleted),
    21: AuditedApi("records.delete", resource_changes.records_deleted, read_log_start_offsets),
    WRITE_TXN_MARKERS: AuditedApi("transaction.abort", resource_changes.transactions_aborted),
    30: AuditedApi("acl.create", resource_changes.acls_created),
    31: AuditedApi("acl.delete", resource_changes.acls_deleted),
    33: AuditedApi("config.alter", resource_changes.configs_altered),
    34: AuditedApi("log.dir.alter", resource_changes.log_dirs_altered, read_log_dirs),
    37: AuditedApi("topic.partitions", resource_changes.partitions_created),
    38: AuditedApi("token.create", resource_changes.token_created),
    39: AuditedApi("token.renew", resource_changes.token_renewed, read_token_id),
    40: AuditedApi("token.expire", resource_changes.token_expired, read_token_id),
    42: AuditedApi("group.delete", resource_changes.groups_deleted, read_group_offsets),
    43: AuditedApi("leader.elect", resource_changes.leaders_elected),
    44: AuditedApi("config.alter", resource_changes.configs_altered, read_log_levels),
    45: AuditedApi("reassignment.alter", resource_changes.replicas_reassigned),
    47: AuditedApi("group.offsets.delete", resource_changes.offsets_deleted, read_offsets_of_request_group),
    49: AuditedApi("quota.alter", resource_changes.quotas_altered),
    51: AuditedApi("user.alter", resource_changes.users_altered),
    57: AuditedApi("feature.update", resource_changes.features_updated),
    64: AuditedApi("broker.unregister", resource_changes.broker_unregistered),
}
OFFSETS_RESET: Final = AuditedApi(
    "group.offsets.alter", resource_changes.offsets_altered, read_offsets_of_request_group
)


def audited(key: int, handle: Handler) -> Handler:
    """Wrap the handler of an API that changes something."""
    how = AUDITED_APIS.get(key)
    if how is None:
        return handle

    async def handle_and_note(request: Any, context: Context) -> Any:
        return await handle_and_audit(how, handle, request, context)

    return handle_and_note


async def handle_and_audit(api: AuditedApi, handle: Handler, request: Any, context: Context) -> Any:
    was_wanted = is_audited(api.event, context)
    seen = (
        await read_state_before(api.read_state, request, context) if was_wanted and api.read_state is not None else {}
    )
    before = context.broker.image
    answer = await call_handler(handle, request, context)
    # Turning the audit trail on or off is itself audited.
    if (was_wanted or is_audited(api.event, context)) and answer is not context.responder:
        await tasks.spawn(
            record_changes(api, request, answer, before, seen, context), "noting a change for the audit trail"
        )
    return answer


async def read_state_before(read_state: StateReader, request: Any, context: Context) -> Any:
    found: list[Any] = []

    async def work() -> None:
        found.append(await read_state(request, context))

    await tasks.spawn(work(), "reading the state before a change, for the audit trail")
    return found[0] if found else {}


def is_audited(event: str, context: Context) -> bool:
    audit = context.broker.audit
    if audit is None or not audit.is_enabled_for(event, context.principal):
        return False
    is_coordinator = context.api_key == WRITE_TXN_MARKERS and context.client.software_name == SOFTWARE_NAME
    return not is_coordinator


async def record_changes(
    api: AuditedApi, request: Any, response: Any, before: MetadataImage, state: Any, context: Context
) -> None:
    broker = context.broker
    if isinstance(response, EncodedBody):
        response = await run_in_worker(broker.workers, decode_if_encoded, response, context)
    asked = AuditedRequest(request, response, before, broker.image, broker.settings, state)
    if is_long(request) or is_long(response):
        found = await run_in_worker(broker.workers, changes_of, api.describe, asked)
    else:
        found = changes_of(api.describe, asked)
    await record_each_change(api.event, found, context)


def changes_of(describe: Describe, asked: AuditedRequest) -> list[Change]:
    if getattr(asked.request, "validate_only", False):
        return []
    return [change for change in describe(asked) if change.error not in AUTHORIZATION_ERRORS]


async def record_each_change(event: str, changes: Sequence[Change], context: Context) -> None:
    audit = context.broker.audit
    assert audit is not None, "the audit trail is on"
    async for change in in_slices(changes):
        audit.record_change(event, context, change)


def is_offset_reset(group_id: str, context: Context) -> bool:
    """Return whether these offsets were set by an administrator and the event is enabled.

    Consumers that assign partitions themselves commit in the same way, but their groups never had members. Of those
    only the first commit is treated as an administrator's.
    """
    if not is_audited(OFFSETS_RESET.event, context):
        return False
    try:
        machine = context.broker.coordinators.groups.shard(group_id).machine
    except KafkaError:
        return False
    group = machine.groups.get(group_id)
    if group is not None and group.protocol_type:
        return True
    return group_id in machine.consumer.groups or not machine.offsets.has_offsets(group_id)


async def record_auto_created_topics(names: Sequence[str], before: MetadataImage, context: Context) -> None:
    """Audit topics that a Metadata request created automatically."""
    if is_audited(TOPIC_CREATED, context):
        asked = AuditedRequest(names, None, before, context.broker.image, context.broker.settings)
        found = changes_of(resource_changes.topics_auto_created, asked)
        await tasks.spawn(record_each_change(TOPIC_CREATED, found, context), "noting new topics for the audit trail")
