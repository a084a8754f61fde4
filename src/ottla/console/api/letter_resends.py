"""Dead letters are sent again: a plan tells how many and where to, then exactly these are sent.

Rules:
1. Whoever sends them may operate the pipeline and the topics that they go to, and read the letters.
2. A letter goes to a topic once, however often somebody clicks (resent.py), unless he wants it again.
3. What is hidden from readers is not copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ottla.base.names import topic_name_problem
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console import resent
from ottla.console.api.call import Call
from ottla.console.api.dead_letters import known_bounds, letters_topic, origin_of, source_topics, with_client
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.api.messages import UnreadRow, masks_of, place_of, unread_row
from ottla.console.clusters.snapshot import Part
from ottla.console.people.rights import Role
from ottla.console.resent import Claim, Origin
from ottla.operations.dead_letters.letter import Letter
from ottla.operations.dead_letters.reading import (
    CHOSEN_BYTES,
    Choice,
    Chosen,
    Kind,
    choose_letters,
    read_one_letter,
    size_of,
)
from ottla.operations.dead_letters.resending import Outcome, resend, target_of
from ottla.operations.messages.windows import partitions_of

RESEND_MAX = 10_000  # letters of one request
TICKED_MAX = 1_000
TOKEN_CHARACTERS_MAX = 64
PROBLEMS_MAX = 5


class Selection(msgspec.Struct, forbid_unknown_fields=True):
    """Some letters, each as partition and offset, or all of a step and reason. `to` is a topic; null: where each came
    from. `ends` are those of the plan, so that nothing is sent that came later. `again`: also what was sent already."""

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
    """`sent_before` of the letters were sent already and are left out, unless they are wanted again."""

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


async def plan(call: Call) -> ResendPlan:
    _, chosen, body = *(await _chosen(call)), call.body
    claims = _claims(chosen.letters, body.to)
    counts = Counter(claim.target for claim in claims)
    return ResendPlan(
        len(claims),
        sum(map(size_of, claims.values())),
        chosen.skipped,
        len(chosen.letters) - len(claims),
        chosen.is_cut,
        [TargetRow(name, number, await _is_there(call, name)) for name, number in sorted(counts.items())],
        {str(partition): end for partition, end in chosen.ends.items()},
        [msgspec.convert(unread_row(each), UnreadRow) for each in chosen.unread],
    )


async def send(call: Call) -> ResendAnswer:
    body = call.body
    if body.letters is None and body.ends is None:
        raise bad_request("all letters of a reason are sent with the ends of a plan: what comes later is not meant")
    if len(body.token) > TOKEN_CHARACTERS_MAX or (body.again and not body.token):
        raise bad_request("whoever sends letters once more gives a token of at most 64 characters, a new one each time")
    topic, chosen = await _chosen(call)
    claims, token = _claims(chosen.letters, body.to), body.token if body.again else ""
    for target in sorted({claim.target for claim in claims}):
        call.require(Role.OPERATOR, target)
    await _refuse_hidden(call, topic, chosen.letters)
    origin = origin_of(call, topic)
    what = {"topic": topic, "step": body.step, "reason": body.reason, "letters": len(chosen.letters), "to": body.to}
    call.note(f"pipeline {call.parameters['pipeline']}, dead letters", before=what)
    mine = await call.console.store.run(
        resent.claim, origin, list(claims), token, call.caller.person, call.console.clock.now_ms()
    )
    answer, places = await _sent(call, origin, [claims[claim] for claim in mine], token)
    answer = msgspec.structs.replace(answer, skipped=chosen.skipped + len(claims) - len(mine))
    after = {**msgspec.structs.asdict(answer), "written": places}
    call.notes[-1] = call.notes[-1]._replace(after=after)
    call.cluster.reader.hurry(Part.ENDS)
    return answer


async def _sent(call: Call, origin: Origin, letters: list[Letter], token: str) -> tuple[ResendAnswer, dict[str, int]]:
    """Sends them; what is refused is given back, so that it can be tried again."""
    if not letters:
        return ResendAnswer(0, 0, 0, 0, []), {}
    to = call.body.to
    results = await with_client(
        call, lambda client: list(resend(client, letters, to, lambda: call.console.is_stopping))
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
    await call.console.store.run(resent.settle, origin, sent, refused, token)
    told = list(problems)[:PROBLEMS_MAX]
    return ResendAnswer(len(sent), len(refused), len(unsure), 0, told), places


async def _chosen(call: Call) -> tuple[str, Chosen]:
    """The letters of a selection, oldest first."""
    body, topic, name = call.body, await letters_topic(call), call.parameters["pipeline"]
    if body.to is not None and (problem := topic_name_problem(body.to)):
        raise bad_request(problem)
    if body.to == topic:
        raise bad_request("letters are not sent to the topic that they lie in")
    sent = set() if body.again else await call.console.store.run(resent.sent_to, origin_of(call, topic))

    def is_sent(letter: Letter) -> bool:
        return any(claim in sent for claim in _claims([letter], body.to))

    if body.letters is None:
        ends = None if body.ends is None else {place_of(key, "ends"): end for key, end in body.ends.items()}
        kind = Kind(body.step, body.reason)
        choice = Choice(kind, RESEND_MAX, ends, known_bounds(call, topic, kind), is_sent)
        return topic, await with_client(call, lambda client: choose_letters(client, topic, name, choice))
    if len(body.letters) > TICKED_MAX:
        raise bad_request(f"at most {TICKED_MAX} letters are named one by one")

    def read(client: Client) -> list[Letter]:
        found = []
        for partition, offset in sorted(set(body.letters)):
            letter = read_one_letter(client, topic, partition, offset)
            if letter is None or letter.pipeline != name:
                raise not_found(f"{topic}-{partition} has no letter of this pipeline at offset {offset}")
            found.append(letter)
            if sum(map(size_of, found)) > CHOSEN_BYTES:
                raise bad_request(f"these letters have more than {CHOSEN_BYTES} bytes: choose fewer of them")
        return found

    found = await with_client(call, read)
    left = [letter for letter in found if not is_sent(letter)]
    return topic, Chosen(left, {}, False, [], len(found) - len(left))


async def _is_there(call: Call, topic: str) -> bool:
    """The cluster is asked where the snapshot knows of none: it may be a new one."""
    if topic in call.snapshot.topics:
        return True
    try:
        return bool(await with_client(call, lambda client: partitions_of(client, topic)))
    except ClientError:
        return False


async def _refuse_hidden(call: Call, topic: str, letters: Sequence[Letter]) -> None:
    for name in sorted({topic, *source_topics(letters)}):
        if not (await masks_of(call, name)).is_empty:
            raise ApiError(403, "MASKED", f"fields of {name} are hidden: its letters are not copied")


def _claims(letters: Sequence[Letter], to: str | None) -> dict[Claim, Letter]:
    """Without those that nobody knows where to send to."""
    found = {}
    for letter in letters:
        target = target_of(letter, to)
        if target is not None:
            found[Claim(letter.record.partition, letter.record.offset, target)] = letter
    return found
