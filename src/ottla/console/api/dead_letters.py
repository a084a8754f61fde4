"""Dead letters of a pipeline: how many by step and reason, and one by one with their source record.

Whoever looks at letters reads messages: the right for that is asked for, by the name of the letters' topic. Fields that
are hidden in a source topic are hidden in its letters, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.console import resent
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, not_found
from ottla.console.api.messages import (
    SHOWN_BYTES,
    SHOWN_BYTES_MAX,
    MessageRow,
    UnreadRow,
    masks_of,
    place_of,
    positions_in,
    unread_row,
)
from ottla.console.api.pipelines import status_of
from ottla.console.people import rights
from ottla.console.resent import Origin, Sent
from ottla.operations.dead_letters.letter import Letter, Source
from ottla.operations.dead_letters.reading import Bounds, Kind, Tally, list_letters, read_one_letter
from ottla.operations.messages.decoding import Decoder
from ottla.operations.messages.masking import Masks
from ottla.operations.messages.message import Message
from ottla.operations.messages.reading import read_one

LIMIT, LIMIT_MAX = 50, 200
COUNT_SECONDS = 1.5  # of one look; the next one goes on
TALLIES_MAX = 20
JSON = "application/json"


class KindRow(msgspec.Struct, frozen=True):
    """Letters with the same step and reason; details that differ from letter to letter are left out of it."""

    step: str
    reason: str
    letters: int
    oldest_ms: int
    newest_ms: int


class LetterSummary(msgspec.Struct, frozen=True):
    """`left`: offsets that were not counted yet; `others`: records that are no letters of this pipeline."""

    topic: str | None
    is_there: bool
    letters: int = 0
    others: int = 0
    left: int = 0
    kinds: list[KindRow] = []
    unread: list[UnreadRow] = []


class SourceRow(msgspec.Struct, frozen=True):
    """`state`: there, gone, another (record stands there now), no topic, unknown."""

    topic: str
    partition: int
    offset: int
    state: str


class SentRow(msgspec.Struct, frozen=True):
    target: str
    outcome: str
    at_ms: int
    person: str


class LetterRow(msgspec.Struct, frozen=True):
    step: str
    reason: str
    kind: str
    source: SourceRow | None
    sent: list[SentRow]
    message: MessageRow


class LetterList(msgspec.Struct, frozen=True):
    letters: list[LetterRow]
    cursor: str
    has_more: bool


@dataclass
class Counted:
    """`seen` is what the snapshot knew of the topic then: as long as it is the same, nobody is asked."""

    tally: Tally
    seen: tuple[object, ...] = ()

    def is_old(self, seen: tuple[object, ...]) -> bool:
        tally = self.tally
        return self.seen != seen or tally.left > 0 or tally.waits or bool(tally.unasked)


class Tallies:
    """Counted letters, by cluster, topic and pipeline; one count at a time."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], Counted] = {}
        self.counting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Tallies {len(self.kept)}>"

    def of(self, cluster: str, topic: str, pipeline: str) -> Counted:
        key = cluster, topic, pipeline
        found = self.kept.pop(key, None) or Counted(Tally(topic, pipeline))
        while len(self.kept) >= TALLIES_MAX:
            self.kept.pop(next(iter(self.kept)))
        self.kept[key] = found
        return found


async def summarize(call: Call) -> LetterSummary:
    topic = await _topic(call)
    if topic is None or topic not in call.snapshot.topics:
        return LetterSummary(topic, is_there=False)
    name, tallies = call.parameters["pipeline"], call.console.tallies
    topic_id, seen = call.snapshot.topics[topic].topic_id, _seen(call, topic)
    async with tallies.counting:
        counted = tallies.of(call.parameters["cluster"], topic, name)
        tally = counted.tally
        if counted.is_old(seen):
            await with_client(call, lambda client: tally.go_on(client, topic_id, COUNT_SECONDS))
            counted.seen = seen
        kinds = [
            KindRow(kind.step or "", kind.reason or "", count.letters, count.oldest_ms, count.newest_ms)
            for kind, count in tally.kinds.items()
        ]
        unread = [msgspec.convert(unread_row(each), UnreadRow) for each in [*tally.damaged, *tally.unasked]]
        return LetterSummary(topic, True, tally.letters, tally.others, tally.left, kinds, unread)


async def list_all(call: Call) -> Response:
    topic = await letters_topic(call)
    kind = Kind(call.query("step") or None, call.query("reason") or None)
    limit, cursor = max(1, call.number("limit", LIMIT, LIMIT_MAX)), positions_in(call.query("cursor"))
    name, bounds = call.parameters["pipeline"], known_bounds(call, topic, kind)
    page = await with_client(call, lambda client: list_letters(client, topic, name, kind, limit, cursor, bounds))
    rows = await _rows(call, topic, page.letters, SHOWN_BYTES)
    answer = {
        "letters": rows,
        "cursor": ",".join(f"{partition}:{offset}" for partition, offset in page.positions.items()),
        "has_more": page.has_more,
    }
    return Response(msgspec.json.encode(answer), media_type=JSON)


def known_bounds(call: Call, topic: str, kind: Kind) -> Bounds | None:
    """Where letters of a kind lie, if all of the topic was counted a moment ago."""
    counted = call.console.tallies.kept.get((call.parameters["cluster"], topic, call.parameters["pipeline"]))
    return None if counted is None or counted.is_old(_seen(call, topic)) else counted.tally.bounds(kind)


def _seen(call: Call, topic: str) -> tuple[object, ...]:
    """What the snapshot knows of a topic: if it is another, there are other letters."""
    found = call.snapshot.topics[topic]
    places = [TopicPartition(topic, each.number) for each in found.partitions]
    starts, ends = call.snapshot.starts, call.snapshot.ends
    return (found.topic_id, *((starts.get(place), ends.get(place)) for place in places))


async def show(call: Call) -> Response:
    topic = await letters_topic(call)
    partition, offset = (place_of(call.parameters[name], name) for name in ("partition", "offset"))
    letter = await with_client(call, lambda client: read_one_letter(client, topic, partition, offset))
    if letter is None or letter.pipeline != call.parameters["pipeline"]:
        raise not_found(f"{topic}-{partition} has no letter of this pipeline at offset {offset}")
    row = (await _rows(call, topic, [letter], SHOWN_BYTES_MAX))[0]
    if row["source"] is not None and letter.source is not None:
        state = await _source_state(call, letter, row["source"]["state"])
        row["source"] = {**row["source"], "state": state}
    return Response(msgspec.json.encode(row), media_type=JSON)


async def _rows(call: Call, topic: str, letters: Sequence[Letter], shown_bytes: int) -> list[dict[str, Any]]:
    places = [(letter.record.partition, letter.record.offset) for letter in letters]
    sent = await call.console.store.run(resent.known, origin_of(call, topic), places)
    decoder = Decoder(topic, call.console.message_workers.schemas(call.cluster.address))
    masks = {name: await masks_of(call, name) for name in {topic, *source_topics(letters)}}
    return await asyncio.to_thread(
        lambda: [_row(call, topic, each, sent, decoder, masks, shown_bytes) for each in letters]
    )


def _row(
    call: Call,
    topic: str,
    letter: Letter,
    sent: dict[tuple[int, int], list[Sent]],
    decoder: Decoder,
    masks: dict[str, Masks],
    shown_bytes: int,
) -> dict[str, Any]:
    """With what is hidden in the letters' topic or in the source topic hidden; reasons may cite a value."""
    record = letter.record
    own = [masks[name] for name in {topic, *source_topics([letter])}]
    hidden = [each for each in own if not each.is_empty]
    message = Message(letter.original, decoder, hidden[0] if hidden else own[0])
    if len(hidden) > 1:
        message = Message(message.record, decoder, hidden[1])
    source = letter.source
    return {
        "step": letter.step,
        "reason": letter.kind if hidden else letter.reason,
        "kind": letter.kind,
        "source": None if source is None else {**source._asdict(), "state": _known_state(call, source)},
        "sent": [each._asdict() for each in sent.get((record.partition, record.offset), [])],
        "message": {**message.shown(shown_bytes), "is_masked": bool(hidden) and message.is_masked},
    }


def _known_state(call: Call, source: Source) -> str:
    """As far as is known without asking."""
    if source.topic not in call.snapshot.topics:
        return "no topic" if call.snapshot.topics else "unknown"
    place = TopicPartition(source.topic, source.partition)
    start, end = call.snapshot.starts.get(place), call.snapshot.ends.get(place)
    if start is None or end is None:
        return "unknown"
    return "gone" if source.offset < start or source.offset >= max(end, start) else "there"


async def _source_state(call: Call, letter: Letter, state: str) -> str:
    """By looking at the source record, if he may."""
    source = letter.source
    assert source is not None
    if state == "no topic" or not rights.may_read_messages(
        call.caller.grants, call.parameters["cluster"], source.topic
    ):
        return state
    found = await with_client(call, lambda client: read_one(client, source.topic, source.partition, source.offset))
    if found is None:
        return "gone"
    return "there" if (found.key, found.value) == (letter.record.key, letter.record.value) else "another"


def source_topics(letters: Sequence[Letter]) -> set[str]:
    """The topics that these letters came from."""
    return {letter.source.topic for letter in letters if letter.source is not None}


def origin_of(call: Call, topic: str) -> Origin:
    """The topic of letters, for whoever notes which of them were sent again."""
    return Origin(call.parameters["cluster"], topic, str(call.snapshot.topics[topic].topic_id))


async def _topic(call: Call) -> str | None:
    """The topic of the pipeline's letters, if the caller may read it; None: it has none, or does not tell."""
    status = await asyncio.to_thread(status_of, call)
    topic = status.places.dead_letters if status.places is not None else ""
    if topic and not rights.may_read_messages(call.caller.grants, call.parameters["cluster"], topic):
        raise ApiError(403, "FORBIDDEN", f"{call.caller.person} may not read the messages of {topic}")
    return topic or None


async def letters_topic(call: Call) -> str:
    """The topic of the pipeline's letters, which is there, and which the caller may read."""
    topic = await _topic(call)
    if topic is None or topic not in call.snapshot.topics:
        raise not_found(f"{call.parameters['pipeline']} has no topic of dead letters in this cluster")
    return topic


async def with_client(call: Call, work: Callable[[Client], Any]) -> Any:
    """Ask the cluster in a thread for messages."""
    address = call.cluster.address

    def run() -> Any:
        with call.console.message_workers.client(address) as client:
            return work(client)

    return await call.console.message_workers.read(run)
