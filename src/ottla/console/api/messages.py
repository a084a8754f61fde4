"""Messages of a topic: pages, single messages, producing; and the rules that hide fields."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from starlette.responses import Response

from ottla.base.names import topic_name_problem
from ottla.console.api.call import Call, is_decimal
from ottla.console.api.errors import ApiError, Sentence, bad_request, forbidden, invalid_topic, not_found
from ottla.console.auth import rights
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.clusters.snapshot import Part
from ottla.console.store import Tables
from ottla.operations.messages.field_masks import RULES_MAX, MaskError, MaskRule, Masks, parse_rule
from ottla.operations.messages.message import Message
from ottla.operations.messages.message_decoder import Decoder
from ottla.operations.messages.offset_ranges import OffsetBound
from ottla.operations.messages.pages import LIMIT_MAX, PageRequest, read_one, read_page
from ottla.operations.messages.producer import NewMessage, produce
from ottla.operations.messages.record_reader import OFFSET_MAX, Record
from ottla.web.application import JSON

LIMIT = 50
SHOWN_BYTES = 4 << 10  # of a key or value in a list
SHOWN_BYTES_MAX = 8 << 20  # and of one message
CURSOR_MAX = 60_000  # characters: HTTP servers limit the length of URLs
NEWEST, OLDEST, END = "newest", "oldest", "end"


class ShownPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key or value. `json`: the document, with large numbers as text; `hex`: if it is not text."""

    format: str
    bytes: int | None
    schema_id: int | None = None
    problem: str | None = None
    is_cut: bool = False
    json: Any = None
    text: str | None = None
    hex: str | None = None


class ShownHeader(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    bytes: int | None


class MessageRow(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    state: str
    codec: str
    is_masked: bool
    key: ShownPart
    value: ShownPart
    headers: list[ShownHeader]


class UnreadRow(msgspec.Struct, frozen=True):
    """Offsets from `start` to before `end` that could not be read; None: the end is unknown."""

    partition: int
    start: int
    end: int | None
    reason: str


class MessagePage(msgspec.Struct, frozen=True):
    """`cursor` addresses the next page; with `from=end` or `oldest` also later messages."""

    messages: list[MessageRow]
    cursor: str
    has_more: bool
    unread: list[UnreadRow]


class MessagePlace(msgspec.Struct, forbid_unknown_fields=True):
    """An existing message; without `cluster` in the cluster of the path."""

    topic: str
    partition: int
    offset: int
    cluster: str | None = None


class NewMessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to produce; null is a null key or value. `encoding` of key, value and headers is text or base64. With
    `copy_of`, everything except the partition is copied.
    """

    key: str | None = None
    value: str | None = None
    headers: list[tuple[str, str | None]] = []
    partition: int | None = None
    encoding: str = "text"
    copy_of: MessagePlace | None = None


class WrittenMessage(msgspec.Struct, frozen=True):
    partition: int
    offset: int


class MaskRules(msgspec.Struct, forbid_unknown_fields=True):
    """Each `topics:field`, such as `orders-*:value.card.number`."""

    rules: list[str]


async def list_messages(call: Call) -> Response:
    topic = checked_topic_name(call)
    cursor = parse_cursor(call.query("cursor"))
    request = PageRequest(
        topic,
        max(1, call.int_query("limit", LIMIT, LIMIT_MAX)),
        partitions_of(call),
        _start_bound(call, cursor),
        cursor,
        with_aborted=call.query("aborted") == "1",
        with_markers=call.query("markers") == "1",
    )
    shown_bytes = call.int_query("bytes", SHOWN_BYTES, SHOWN_BYTES_MAX)
    address, masks = call.cluster.address, await masks_of(call, topic)
    decoder = Decoder(topic, call.console.message_workers.schemas(address))

    def read() -> bytes:
        with call.console.message_workers.client(address) as client:
            page = read_page(client, request)
        answer = {
            "messages": [Message(record, decoder, masks).to_json(shown_bytes) for record in page.records],
            "cursor": ",".join(f"{partition}:{offset}" for partition, offset in page.positions.items()),
            "has_more": page.has_more,
            "unread": [unread_row(item) for item in page.unread],
        }
        return msgspec.json.encode(answer)

    return Response(await call.console.message_workers.read(read), media_type=JSON)


async def show_message(call: Call) -> Response:
    topic = checked_topic_name(call)
    partition, offset = (
        parse_number(call.parameters["partition"], "partition"),
        parse_number(call.parameters["offset"], "offset"),
    )
    address, masks = call.cluster.address, await masks_of(call, topic)
    decoder = Decoder(topic, call.console.message_workers.schemas(address))

    def read() -> bytes | None:
        found = _read_one(call, address, topic, partition, offset)
        return None if found is None else msgspec.json.encode(Message(found, decoder, masks).to_json(SHOWN_BYTES_MAX))

    data = await call.console.message_workers.read(read)
    if data is None:
        raise not_found("{0} has no message at offset {1}", f"{topic}-{partition}", offset)
    return Response(data, media_type=JSON)


async def produce_message(call: Call) -> WrittenMessage:
    topic, body = checked_topic_name(call), call.body
    message = await _copy_message(call, body) if body.copy_of is not None else _message_from_body(body)
    address = call.cluster.address

    def write() -> WrittenMessage:
        with call.console.message_workers.client(address) as client:
            return WrittenMessage(*produce(client, topic, message))

    sizes = {
        "key_bytes": _size_or_none(message.key),
        "value_bytes": _size_or_none(message.value),
    }  # the audit trail has no contents
    call.audit(f"topic {topic}", after=sizes)
    written = await call.console.message_workers.read(write)
    call.audit_notes[-1] = call.audit_notes[-1]._replace(
        after={**sizes, "partition": written.partition, "offset": written.offset}
    )
    call.cluster.reader.refresh(Part.ENDS)
    return written


async def list_masks(call: Call) -> MaskRules:
    return MaskRules(await call.console.store.run(Tables.masks, call.parameters["cluster"]))


async def put_masks(call: Call) -> MaskRules:
    cluster, rules = call.parameters["cluster"], call.body.rules
    if len(rules) > RULES_MAX:
        raise bad_request("there are at most {0} rules", RULES_MAX)
    try:
        parsed = [str(parse_rule(rule)) and rule.strip() for rule in rules]
    except MaskError as problem:
        raise bad_request(str(problem)) from None
    call.audit("masks", await call.console.store.run(Tables.masks, cluster), parsed)
    await call.console.store.run(Tables.put_masks, cluster, parsed)
    return MaskRules(parsed)


async def masks_of(call: Call, topic: str, cluster: str | None = None) -> Masks:
    """The masks of a topic."""
    rules = await call.console.store.run(Tables.masks, cluster or call.parameters["cluster"])
    return Masks([_parse_mask(rule) for rule in rules], topic)


def checked_topic_name(call: Call) -> str:
    """The topic in the path. It need not be in the snapshot, because the cluster is asked anyway."""
    name = call.parameters["topic"]
    problem = topic_name_problem(name)
    if problem is not None:
        raise invalid_topic(problem)
    return name


def partitions_of(call: Call) -> frozenset[int]:
    """Parse `partition=0,3`; empty: all."""
    text = call.query("partition")
    return frozenset(parse_number(part, "partition") for part in text.split(",")) if text else frozenset()


def unread_row(item: Any) -> dict[str, Any]:
    return {
        "partition": item.partition,
        "start": item.start,
        "end": None if item.end >= OFFSET_MAX else item.end,
        "reason": item.reason,
    }


def _parse_mask(text: str) -> MaskRule:
    return parse_rule(text)


def _start_bound(call: Call, cursor: dict[int, int] | None) -> OffsetBound | None:
    """`from` is newest, oldest, end, offset or time."""
    word = call.query("from", NEWEST)
    match word:
        case "newest":
            return None
        case "oldest":
            return OffsetBound()
        case "end":
            return OffsetBound() if cursor else OffsetBound(offset=OFFSET_MAX)
        case "offset":
            return OffsetBound(offset=call.int_query("offset", 0, OFFSET_MAX))
        case "time":
            return OffsetBound(time_ms=call.int_query("time", 0, OFFSET_MAX))
    raise bad_request("from must be newest, oldest, end, offset or time")


def parse_cursor(text: str) -> dict[int, int] | None:
    """The positions of a cursor; None if empty."""
    if not text:
        return None
    if len(text) > CURSOR_MAX:
        raise bad_request("this cursor is too long: select fewer partitions")
    found = {}
    for part in text.split(","):
        partition, _, offset = part.partition(":")
        found[parse_number(partition, "cursor")] = parse_number(offset, "cursor")
    return found


def parse_number(text: str, name: str) -> int:
    """Parse a partition or an offset of a URL. Raises ApiError."""
    if not is_decimal(text) or int(text) > OFFSET_MAX:
        raise bad_request("{0} {1} is not a whole number", name, repr(text[:30]))
    return int(text)


def _message_from_body(body: NewMessageBody) -> NewMessage:
    if body.encoding not in ("text", "base64"):
        raise bad_request("encoding must be text or base64")
    try:
        headers = [(name, _decode_text(value, body.encoding)) for name, value in body.headers]
        return NewMessage(
            _decode_text(body.key, body.encoding), _decode_text(body.value, body.encoding), headers, body.partition
        )
    except (binascii.Error, ValueError):
        raise bad_request("this text cannot be encoded, or is not base64") from None


def _decode_text(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()


async def _copy_message(call: Call, body: NewMessageBody) -> NewMessage:
    place = body.copy_of
    assert place is not None
    cluster = place.cluster or call.parameters["cluster"]
    is_allowed = rights.has_role(call.caller.grants, rights.Role.VIEWER, cluster, place.topic)
    if not is_allowed or not rights.may_read_messages(call.caller.grants, cluster, place.topic):
        raise forbidden("{0} may not read the messages of {1}", call.caller.person, place.topic)
    source = call.console.cluster(cluster)
    if not (await masks_of(call, place.topic, cluster)).is_empty:
        raise ApiError(403, "MASKED", Sentence("fields of {0} are hidden: its messages are not copied", place.topic))
    found = await call.console.message_workers.read(
        _read_one, call, source.address, place.topic, place.partition, place.offset
    )
    if found is None:
        raise not_found("{0} has no message at offset {1}", f"{place.topic}-{place.partition}", place.offset)
    return NewMessage(found.key, found.value, found.headers, body.partition)


def _read_one(call: Call, address: ClusterAddress, topic: str, partition: int, offset: int) -> Record | None:
    with call.console.message_workers.client(address) as client:
        return read_one(client, topic, partition, offset)


def _size_or_none(data: bytes | None) -> int | None:
    return None if data is None else len(data)
