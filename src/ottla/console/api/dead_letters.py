"""Dead letters of a pipeline: counts by step and reason, single letters with their source record, and resending.

Rules:
1. Reading letters requires the right to read messages of the dead letter topic. Fields that are hidden in a source
   topic are also hidden in its letters.
2. A plan shows how many letters are sent and where to; then exactly these are sent. Sending requires the operator role
   for the pipeline and the target topics, and the right to read the letters.
3. A letter goes to a topic at most once (resend_ledger.py), unless the caller requests it again.
4. Letters with hidden fields are not resent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from ottla.base.names import TopicPartition, topic_name_problem
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console import resend_ledger
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.api.messages import (
    SHOWN_BYTES,
    SHOWN_BYTES_MAX,
    MessageRow,
    UnreadRow,
    masks_of,
    parse_cursor,
    parse_number,
    unread_row,
)
from ottla.console.api.pipelines import find_status
from ottla.console.auth import rights
from ottla.console.auth.rights import Role
from ottla.console.clusters.snapshot import Part
from ottla.console.resend_ledger import Claim, LetterTopic, Resend
from ottla.operations.dead_letters import (
    SELECTED_BYTES_MAX,
    Bounds,
    DeadLetterCounter,
    Letter,
    LetterFilter,
    LetterKind,
    LetterSelection,
    Outcome,
    Source,
    list_letters,
    read_one_letter,
    resend_letters,
    select_letters,
    size_of,
    target_of,
)
from ottla.operations.messages.field_masks import Masks
from ottla.operations.messages.message import Message
from ottla.operations.messages.message_decoder import Decoder
from ottla.operations.messages.offset_ranges import partitions_of
from ottla.operations.messages.pages import read_one
from ottla.web.application import JSON

LIMIT, LIMIT_MAX = 50, 200
COUNT_SECONDS_MAX = 1.5  # per request; the next one continues
TALLIES_MAX = 20


class KindRow(msgspec.Struct, frozen=True):
    """Letters with the same step and reason; the variable details of a reason are cut off."""

    step: str
    reason: str
    letters: int
    oldest_ms: int
    newest_ms: int


class LetterSummary(msgspec.Struct, frozen=True):
    """`left`: offsets not counted yet; `others`: records that are not letters of this pipeline."""

    topic: str | None
    is_there: bool
    letters: int = 0
    others: int = 0
    left: int = 0
    kinds: list[KindRow] = []
    unread: list[UnreadRow] = []


class SourceRow(msgspec.Struct, frozen=True):
    """`state`: there, gone, another (the offset now has another record), no topic, unknown."""

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
class CachedTally:
    """A tally with the offsets of the topic when it was made; while they are the same, the topic is not read again."""

    tally: DeadLetterCounter
    counted_offsets: tuple[object, ...] = ()

    def is_stale(self, seen: tuple[object, ...]) -> bool:
        tally = self.tally
        return (
            self.counted_offsets != seen
            or tally.remaining_offsets > 0
            or tally.has_open_transactions
            or bool(tally.failed_partitions)
        )


class TallyCache:
    """A cache of tallies by cluster, topic and pipeline; one count at a time."""

    def __init__(self) -> None:
        self.cached: dict[tuple[str, str, str], CachedTally] = {}
        self.count_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TallyCache {len(self.cached)}>"

    def get(self, cluster: str, topic: str, pipeline: str) -> CachedTally:
        key = cluster, topic, pipeline
        found = self.cached.pop(key, None) or CachedTally(DeadLetterCounter(topic, pipeline))
        while len(self.cached) >= TALLIES_MAX:
            self.cached.pop(next(iter(self.cached)))
        self.cached[key] = found
        return found


async def summarize(call: Call) -> LetterSummary:
    topic = await _readable_letters_topic(call)
    if topic is None or topic not in call.snapshot.topics:
        return LetterSummary(topic, is_there=False)
    name, tallies = call.parameters["pipeline"], call.console.tally_cache
    topic_id, seen = call.snapshot.topics[topic].topic_id, _current_offsets(call, topic)
    async with tallies.count_lock:
        counted = tallies.get(call.parameters["cluster"], topic, name)
        tally = counted.tally
        if counted.is_stale(seen):
            await with_client(call, lambda client: tally.update(client, topic_id, COUNT_SECONDS_MAX))
            counted.counted_offsets = seen
        kinds = [
            KindRow(kind.step or "", kind.reason or "", count.letters, count.oldest_ms, count.newest_ms)
            for kind, count in tally.kinds.items()
        ]
        unread = [msgspec.convert(unread_row(each), UnreadRow) for each in [*tally.damaged, *tally.failed_partitions]]
        return LetterSummary(topic, True, tally.letters, tally.other_records, tally.remaining_offsets, kinds, unread)


async def list_dead_letters(call: Call) -> Response:
    topic = await letters_topic(call)
    kind = LetterKind(call.query("step") or None, call.query("reason") or None)
    limit, cursor = max(1, call.int_query("limit", LIMIT, LIMIT_MAX)), parse_cursor(call.query("cursor"))
    name, bounds = call.parameters["pipeline"], cached_bounds(call, topic, kind)
    page = await with_client(call, lambda client: list_letters(client, topic, name, kind, limit, cursor, bounds))
    rows = await _letter_rows(call, topic, page.letters, SHOWN_BYTES)
    answer = {
        "letters": rows,
        "cursor": ",".join(f"{partition}:{offset}" for partition, offset in page.positions.items()),
        "has_more": page.has_more,
    }
    return Response(msgspec.json.encode(answer), media_type=JSON)


def cached_bounds(call: Call, topic: str, kind: LetterKind) -> Bounds | None:
    """The offset bounds of letters of a kind, if the tally is current."""
    counted = call.console.tally_cache.cached.get((call.parameters["cluster"], topic, call.parameters["pipeline"]))
    return None if counted is None or counted.is_stale(_current_offsets(call, topic)) else counted.tally.bounds(kind)


def _current_offsets(call: Call, topic: str) -> tuple[object, ...]:
    """The id and offsets of a topic in the snapshot; they change with its letters."""
    found = call.snapshot.topics[topic]
    places = [TopicPartition(topic, each.number) for each in found.partitions]
    starts, ends = call.snapshot.starts, call.snapshot.ends
    return (found.topic_id, *((starts.get(place), ends.get(place)) for place in places))


async def show_dead_letter(call: Call) -> Response:
    topic = await letters_topic(call)
    partition, offset = (parse_number(call.parameters[name], name) for name in ("partition", "offset"))
    letter = await with_client(call, lambda client: read_one_letter(client, topic, partition, offset))
    if letter is None or letter.pipeline != call.parameters["pipeline"]:
        raise not_found(f"{topic}-{partition} has no letter of this pipeline at offset {offset}")
    row = (await _letter_rows(call, topic, [letter], SHOWN_BYTES_MAX))[0]
    if row["source"] is not None and letter.source is not None:
        state = await _source_state(call, letter, row["source"]["state"])
        row["source"] = {**row["source"], "state": state}
    return Response(msgspec.json.encode(row), media_type=JSON)


async def _letter_rows(call: Call, topic: str, letters: Sequence[Letter], shown_bytes: int) -> list[dict[str, Any]]:
    places = [(letter.record.partition, letter.record.offset) for letter in letters]
    sent = await call.console.store.run(resend_ledger.earlier_resends, letter_topic_of(call, topic), places)
    decoder = Decoder(topic, call.console.message_workers.schemas(call.cluster.address))
    masks = {name: await masks_of(call, name) for name in {topic, *source_topics(letters)}}
    return await asyncio.to_thread(
        lambda: [_letter_row(call, topic, each, sent, decoder, masks, shown_bytes) for each in letters]
    )


def _letter_row(
    call: Call,
    topic: str,
    letter: Letter,
    sent: dict[tuple[int, int], list[Resend]],
    decoder: Decoder,
    masks: dict[str, Masks],
    shown_bytes: int,
) -> dict[str, Any]:
    """Apply the masks of the letters' topic and of the source topic; also to the reason, which may quote a value."""
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
        "source": None if source is None else {**source._asdict(), "state": _state_from_snapshot(call, source)},
        "sent": [each._asdict() for each in sent.get((record.partition, record.offset), [])],
        "message": {**message.to_json(shown_bytes), "is_masked": bool(hidden) and message.is_masked},
    }


def _state_from_snapshot(call: Call, source: Source) -> str:
    """The state of the source record, from the snapshot."""
    if source.topic not in call.snapshot.topics:
        return "no topic" if call.snapshot.topics else "unknown"
    place = TopicPartition(source.topic, source.partition)
    start, end = call.snapshot.starts.get(place), call.snapshot.ends.get(place)
    if start is None or end is None:
        return "unknown"
    return "gone" if source.offset < start or source.offset >= max(end, start) else "there"


async def _source_state(call: Call, letter: Letter, state: str) -> str:
    """The state after reading the source record, if the caller may read it."""
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
    """The source topics of letters."""
    return {letter.source.topic for letter in letters if letter.source is not None}


def letter_topic_of(call: Call, topic: str) -> LetterTopic:
    """The dead letter topic, as the resend ledger identifies it."""
    return LetterTopic(call.parameters["cluster"], topic, str(call.snapshot.topics[topic].topic_id))


async def _readable_letters_topic(call: Call) -> str | None:
    """The dead letter topic of the pipeline, if the caller may read it; None: none, or not reported."""
    status = await asyncio.to_thread(find_status, call)
    topic = status.places.dead_letters if status.places is not None else ""
    if topic and not rights.may_read_messages(call.caller.grants, call.parameters["cluster"], topic):
        raise ApiError(403, "FORBIDDEN", f"{call.caller.person} may not read the messages of {topic}")
    return topic or None


async def letters_topic(call: Call) -> str:
    """The existing dead letter topic of the pipeline. Raises ApiError."""
    topic = await _readable_letters_topic(call)
    if topic is None or topic not in call.snapshot.topics:
        raise not_found(f"{call.parameters['pipeline']} has no dead letter topic in this cluster")
    return topic


async def with_client(call: Call, work: Callable[[Client], Any]) -> Any:
    """Call a function with a client, in a reader thread."""
    address = call.cluster.address

    def run() -> Any:
        with call.console.message_workers.client(address) as client:
            return work(client)

    return await call.console.message_workers.read(run)


RESEND_MAX = 10_000  # letters of one request
SELECTED_MAX = 1_000
TOKEN_CHARACTERS_MAX = 64
PROBLEMS_MAX = 5


class Selection(msgspec.Struct, forbid_unknown_fields=True):
    """Single letters as partition and offset, or all of a step and reason.

    `to` is a topic; null: the source topic of each. `ends` of the plan exclude later letters. `again` includes letters
    that were already sent.
    """

    letters: list[tuple[int, int]] | None = None
    step: str | None = None
    reason: str | None = None
    to: str | None = None
    ends: dict[str, int] | None = None
    again: bool = False
    token: str = ""


class TargetRow(msgspec.Struct, frozen=True):
    topic: str
    letters: int
    is_there: bool


class ResendPlan(msgspec.Struct, frozen=True):
    """`sent_before` letters were already sent and are skipped, unless they are requested again."""

    letters: int
    bytes: int
    sent_before: int
    without_source: int
    is_cut: bool
    targets: list[TargetRow]
    ends: dict[str, int]
    unread: list[UnreadRow]


class ResendAnswer(msgspec.Struct, frozen=True):
    sent: int
    refused: int
    unsure: int
    skipped: int
    problems: list[str]


async def plan_resend(call: Call) -> ResendPlan:
    _, chosen, body = *(await _select_letters(call)), call.body
    claims = _claims_of(chosen.letters, body.to)
    counts = Counter(claim.target for claim in claims)
    return ResendPlan(
        len(claims),
        sum(map(size_of, claims.values())),
        chosen.skipped,
        len(chosen.letters) - len(claims),
        chosen.is_cut,
        [TargetRow(name, number, await _topic_exists(call, name)) for name, number in sorted(counts.items())],
        {str(partition): end for partition, end in chosen.ends.items()},
        [msgspec.convert(unread_row(each), UnreadRow) for each in chosen.unread],
    )


async def send_again(call: Call) -> ResendAnswer:
    body = call.body
    if body.letters is None and body.ends is None:
        raise bad_request("to resend all letters of a reason, send the ends of a plan: later letters are not included")
    if len(body.token) > TOKEN_CHARACTERS_MAX or (body.again and not body.token):
        raise bad_request("to resend letters again, send a new token of at most 64 characters")
    topic, chosen = await _select_letters(call)
    claims, token = _claims_of(chosen.letters, body.to), body.token if body.again else ""
    for target in sorted({claim.target for claim in claims}):
        call.require_role(Role.OPERATOR, target)
    await _check_no_masks(call, topic, chosen.letters)
    origin = letter_topic_of(call, topic)
    what = {"topic": topic, "step": body.step, "reason": body.reason, "letters": len(chosen.letters), "to": body.to}
    call.audit(f"pipeline {call.parameters['pipeline']}, dead letters", before=what)
    claimed = await call.console.store.run(
        resend_ledger.claim, origin, list(claims), token, call.caller.person, call.console.clock.now_ms()
    )
    answer, places = await _send_claimed(call, origin, [claims[claim] for claim in claimed], token)
    answer = msgspec.structs.replace(answer, skipped=chosen.skipped + len(claims) - len(claimed))
    after = {**msgspec.structs.asdict(answer), "written": places}
    call.audit_notes[-1] = call.audit_notes[-1]._replace(after=after)
    call.cluster.reader.refresh(Part.ENDS)
    return answer


async def _send_claimed(
    call: Call, origin: LetterTopic, letters: list[Letter], token: str
) -> tuple[ResendAnswer, dict[str, int]]:
    """Send claimed letters; refused ones are released for another attempt."""
    if not letters:
        return ResendAnswer(0, 0, 0, 0, []), {}
    to = call.body.to
    results = await with_client(
        call, lambda client: list(resend_letters(client, letters, to, lambda: call.console.is_stopping))
    )
    by_outcome: dict[Outcome, list[Claim]] = {outcome: [] for outcome in Outcome}
    problems: dict[str, None] = {}
    places: dict[str, int] = {}
    for each in results:
        by_outcome[each.outcome].append(Claim(each.letter.record.partition, each.letter.record.offset, each.topic))
        if each.problem:
            problems[f"{each.topic}: {each.problem}"] = None
        if each.outcome is Outcome.SENT:
            places[each.topic] = places.get(each.topic, 0) + 1
    sent, refused, unsure = (by_outcome[outcome] for outcome in (Outcome.SENT, Outcome.REFUSED, Outcome.UNSURE))
    await call.console.store.run(resend_ledger.record_outcomes, origin, sent, refused, token)
    shown_problems = list(problems)[:PROBLEMS_MAX]
    return ResendAnswer(len(sent), len(refused), len(unsure), 0, shown_problems), places


async def _select_letters(call: Call) -> tuple[str, LetterSelection]:
    """The letters of a selection, oldest first."""
    body, topic, name = call.body, await letters_topic(call), call.parameters["pipeline"]
    if body.to is not None and (problem := topic_name_problem(body.to)):
        raise bad_request(problem)
    if body.to == topic:
        raise bad_request("letters cannot be sent to their own dead letter topic")
    sent = (
        set()
        if body.again
        else await call.console.store.run(resend_ledger.claimed_letters, letter_topic_of(call, topic))
    )

    def is_sent(letter: Letter) -> bool:
        return any(claim in sent for claim in _claims_of([letter], body.to))

    if body.letters is None:
        ends = None if body.ends is None else {parse_number(key, "ends"): end for key, end in body.ends.items()}
        kind = LetterKind(body.step, body.reason)
        choice = LetterFilter(kind, RESEND_MAX, ends, cached_bounds(call, topic, kind), is_sent)
        return topic, await with_client(call, lambda client: select_letters(client, topic, name, choice))
    if len(body.letters) > SELECTED_MAX:
        raise bad_request(f"at most {SELECTED_MAX} letters can be listed individually")

    def read(client: Client) -> list[Letter]:
        found = []
        for partition, offset in sorted(set(body.letters)):
            letter = read_one_letter(client, topic, partition, offset)
            if letter is None or letter.pipeline != name:
                raise not_found(f"{topic}-{partition} has no letter of this pipeline at offset {offset}")
            found.append(letter)
            if sum(map(size_of, found)) > SELECTED_BYTES_MAX:
                raise bad_request(f"these letters exceed {SELECTED_BYTES_MAX} bytes: select fewer")
        return found

    found = await with_client(call, read)
    left = [letter for letter in found if not is_sent(letter)]
    return topic, LetterSelection(left, {}, False, [], len(found) - len(left))


async def _topic_exists(call: Call, topic: str) -> bool:
    """Ask the cluster if the snapshot lacks the topic: it may be new."""
    if topic in call.snapshot.topics:
        return True
    try:
        return bool(await with_client(call, lambda client: partitions_of(client, topic)))
    except ClientError:
        return False


async def _check_no_masks(call: Call, topic: str, letters: Sequence[Letter]) -> None:
    for name in sorted({topic, *source_topics(letters)}):
        if not (await masks_of(call, name)).is_empty:
            raise ApiError(403, "MASKED", f"fields of {name} are hidden: its letters are not copied")


def _claims_of(letters: Sequence[Letter], to: str | None) -> dict[Claim, Letter]:
    """Claims of letters that have a target."""
    found = {}
    for letter in letters:
        target = target_of(letter, to)
        if target is not None:
            found[Claim(letter.record.partition, letter.record.offset, target)] = letter
    return found
