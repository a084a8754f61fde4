"""Messages of a topic: pages of them, one of them, new ones; and the rules by which fields are hidden."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from starlette.responses import Response

from ottla.base.names import topic_name_problem
from ottla.console.api.call import Call, is_whole_number
from ottla.console.api.errors import ApiError, Sentence, bad_request, bad_topic, forbidden, not_found
from ottla.console.clusters.cluster import Address
from ottla.console.clusters.snapshot import Part
from ottla.console.people import rights
from ottla.console.store import Tables
from ottla.operations.messages.decoding import Decoder
from ottla.operations.messages.masking import RULES_MAX, MaskError, MaskRule, Masks, parse_rule
from ottla.operations.messages.message import Message
from ottla.operations.messages.producing import NewMessage, produce
from ottla.operations.messages.reading import LIMIT_MAX, PageRequest, read_one, read_page
from ottla.operations.messages.walking import OFFSET_MAX, Record
from ottla.operations.messages.windows import Bound

LIMIT = 50
SHOWN_BYTES = 4 << 10  # of a key or value in a list
SHOWN_BYTES_MAX = 8 << 20  # and of one message
CURSOR_MAX = 60_000  # characters: servers take no longer addresses
NEWEST, OLDEST, END = "newest", "oldest", "end"
JSON = "application/json"


class ShownPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key or value. `json` is its document with numbers that scripts would change as text; `hex` if it is no text."""

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
    """Offsets start … end - 1 that could not be read; None: nobody knows which."""

    partition: int
    start: int
    end: int | None
    reason: str


class MessagePage(msgspec.Struct, frozen=True):
    """`cursor` leads to the next page; with `from=end` or `oldest` also to what is written later."""

    messages: list[MessageRow]
    cursor: str
    has_more: bool
    unread: list[UnreadRow]


class MessagePlace(msgspec.Struct, forbid_unknown_fields=True):
    """A message that is there; no cluster: the one of the path."""

    topic: str
    partition: int
    offset: int
    cluster: str | None = None


class NewMessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to write: null is null. `encoding` says what key, value and headers are: text or base64. With `copy_of`
    everything but the partition is taken from there.
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
    topic = topic_of(call)
    cursor = positions_in(call.query("cursor"))
    request = PageRequest(
        topic,
        max(1, call.number("limit", LIMIT, LIMIT_MAX)),
        partitions_of(call),
        _start(call, cursor),
        cursor,
        with_aborted=call.query("aborted") == "1",
        with_markers=call.query("markers") == "1",
    )
    shown_bytes = call.number("bytes", SHOWN_BYTES, SHOWN_BYTES_MAX)
    address, masks = call.cluster.address, await masks_of(call, topic)
    decoder = Decoder(topic, call.console.message_workers.schemas(address))

    def read() -> bytes:
        with call.console.message_workers.client(address) as client:
            page = read_page(client, request)
        answer = {
            "messages": [Message(record, decoder, masks).shown(shown_bytes) for record in page.records],
            "cursor": ",".join(f"{partition}:{offset}" for partition, offset in page.positions.items()),
            "has_more": page.has_more,
            "unread": [unread_row(item) for item in page.unread],
        }
        return msgspec.json.encode(answer)

    return Response(await call.console.message_workers.read(read), media_type=JSON)


async def show_message(call: Call) -> Response:
    topic = topic_of(call)
    partition, offset = (
        place_of(call.parameters["partition"], "partition"),
        place_of(call.parameters["offset"], "offset"),
    )
    address, masks = call.cluster.address, await masks_of(call, topic)
    decoder = Decoder(topic, call.console.message_workers.schemas(address))

    def read() -> bytes | None:
        found = _read_one(call, address, topic, partition, offset)
        return None if found is None else msgspec.json.encode(Message(found, decoder, masks).shown(SHOWN_BYTES_MAX))

    data = await call.console.message_workers.read(read)
    if data is None:
        raise not_found("{0} has no message at offset {1}", f"{topic}-{partition}", offset)
    return Response(data, media_type=JSON)


async def produce_message(call: Call) -> WrittenMessage:
    topic, body = topic_of(call), call.body
    message = await _copied(call, body) if body.copy_of is not None else _typed(body)
    address = call.cluster.address

    def write() -> WrittenMessage:
        with call.console.message_workers.client(address) as client:
            return WrittenMessage(*produce(client, topic, message))

    sizes = {"key_bytes": _size(message.key), "value_bytes": _size(message.value)}  # the content is nobody's business
    call.note(f"topic {topic}", after=sizes)
    written = await call.console.message_workers.read(write)
    call.notes[-1] = call.notes[-1]._replace(after={**sizes, "partition": written.partition, "offset": written.offset})
    call.cluster.reader.hurry(Part.ENDS)
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
    call.note("masks", await call.console.store.run(Tables.masks, cluster), parsed)
    await call.console.store.run(Tables.put_masks, cluster, parsed)
    return MaskRules(parsed)


async def masks_of(call: Call, topic: str, cluster: str | None = None) -> Masks:
    """What is hidden in a topic."""
    rules = await call.console.store.run(Tables.masks, cluster or call.parameters["cluster"])
    return Masks([_rule(rule) for rule in rules], topic)


def topic_of(call: Call) -> str:
    """The name in the path: the cluster is asked anyway, and may know a topic that is newer than the snapshot."""
    name = call.parameters["topic"]
    problem = topic_name_problem(name)
    if problem is not None:
        raise bad_topic(problem)
    return name


def partitions_of(call: Call) -> frozenset[int]:
    """`partition=0,3`; nothing: all."""
    text = call.query("partition")
    return frozenset(place_of(part, "partition") for part in text.split(",")) if text else frozenset()


def unread_row(item: Any) -> dict[str, Any]:
    return {
        "partition": item.partition,
        "start": item.start,
        "end": None if item.end >= OFFSET_MAX else item.end,
        "reason": item.reason,
    }


def _rule(text: str) -> MaskRule:
    return parse_rule(text)


def _start(call: Call, cursor: dict[int, int] | None) -> Bound | None:
    """`from` is newest, oldest, end, offset or time."""
    word = call.query("from", NEWEST)
    match word:
        case "newest":
            return None
        case "oldest":
            return Bound()
        case "end":
            return Bound() if cursor else Bound(offset=OFFSET_MAX)
        case "offset":
            return Bound(offset=call.number("offset", 0, OFFSET_MAX))
        case "time":
            return Bound(time_ms=call.number("time", 0, OFFSET_MAX))
    raise bad_request("from is newest, oldest, end, offset or time")


def positions_in(text: str) -> dict[int, int] | None:
    """Those of a cursor; None: there is none."""
    if not text:
        return None
    if len(text) > CURSOR_MAX:
        raise bad_request("this cursor is too long: choose some of the partitions")
    found = {}
    for part in text.split(","):
        partition, _, offset = part.partition(":")
        found[place_of(partition, "cursor")] = place_of(offset, "cursor")
    return found


def place_of(text: str, name: str) -> int:
    """The number of a partition or an offset, as addresses have it."""
    if not is_whole_number(text) or int(text) > OFFSET_MAX:
        raise bad_request("{0} {1} is not a whole number", name, repr(text[:30]))
    return int(text)


def _typed(body: NewMessageBody) -> NewMessage:
    if body.encoding not in ("text", "base64"):
        raise bad_request("encoding is text or base64")
    try:
        headers = [(name, _bytes(value, body.encoding)) for name, value in body.headers]
        return NewMessage(_bytes(body.key, body.encoding), _bytes(body.value, body.encoding), headers, body.partition)
    except (binascii.Error, ValueError):
        raise bad_request("this is no text that can be written, or no base64") from None


def _bytes(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()


async def _copied(call: Call, body: NewMessageBody) -> NewMessage:
    place = body.copy_of
    assert place is not None
    cluster = place.cluster or call.parameters["cluster"]
    is_allowed = rights.may(call.caller.grants, rights.Role.VIEWER, cluster, place.topic)
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


def _read_one(call: Call, address: Address, topic: str, partition: int, offset: int) -> Record | None:
    with call.console.message_workers.client(address) as client:
        return read_one(client, topic, partition, offset)


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)
