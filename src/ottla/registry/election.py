"""Which of several nodes writes, decided as Confluent's registries do it: by a group of Kafka with the protocol `sr`.

A thread is a member of the group: it joins, the group's leader chooses, and a heartbeat every second keeps it in.

Rules:
1. Whoever leads does so only as long as the group's coordinator could not have given him up: a session time after the
   last heartbeat that was answered, reckoned from when it was sent. A node that was paused finds its time over.
2. That is for not asking in vain. What makes sure that nobody else writes is the epoch of the topic's producer.
3. While the group is put together anew nobody leads.
4. A cluster that does not answer is asked again; it is said once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.coordinators import KeyType, find_coordinator
from ottla.client.errors import ClientError, refusal
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.registry.candidates import (
    DUPLICATE_URLS,
    NOBODY,
    Candidate,
    choose,
    decode_assignment,
    decode_candidate,
    encode_assignment,
    encode_candidate,
)

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 10_000
HEARTBEAT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.5
ANSWER_MS: Final = 5_000  # beyond what a broker may keep a request
JOINED_ANEW: Final = frozenset(
    {Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.MEMBER_ID_REQUIRED}
)
R = TypeVar("R")


class Election:
    """This node's membership, and the Leadership that it gives."""

    def __init__(
        self,
        make_client: Callable[[int], Client],
        group: str,
        candidate: Candidate,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = make_client(REBALANCE_MS + ANSWER_MS)
        self._group = group
        self._candidate = candidate
        self._monotonic = monotonic
        self._member = ""
        self._generation = -1
        self._assignment = NOBODY
        self._good_until = float("-inf")
        self._coordinator: int | None = None
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    def __repr__(self) -> str:
        return f"<Election of {self._group}, {self._candidate.url}, generation {self._generation}>"

    # From any thread

    @property
    def is_leader(self) -> bool:
        assignment = self._assignment
        return assignment.member == self._member != "" and self._is_good

    @property
    def leader_url(self) -> str | None:
        leader = self._assignment.leader
        return leader.url if leader is not None and self._is_good else None

    @property
    def term(self) -> int:
        return self._generation

    @property
    def _is_good(self) -> bool:
        return self._monotonic() < self._good_until

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds_max: float = 2.0) -> None:
        """Leave, so that the others need not wait for the end of the session."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds_max)

    # In the member's thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._join()
                    self._stay()
                except ClientError as problem:
                    self._give_up(problem)
                except Exception as problem:  # ours; without an election nobody could change anything any more
                    logger.exception("the election of %s begins anew", self._group)
                    self._give_up(ClientError(f"{type(problem).__name__}: {problem}"))
            self._leave()
        except Exception:
            logger.exception("the election of %s has ended", self._group)
        finally:
            self._assignment = NOBODY
            self._client.close()

    def _give_up(self, problem: ClientError) -> None:
        """Nobody leads as far as this node knows; the group is joined again, after a pause if that was not its wish."""
        self._assignment = NOBODY
        if problem.error is Error.UNKNOWN_MEMBER_ID:
            self._member = ""
        if problem.error in JOINED_ANEW:
            return
        self._coordinator = None
        self._client.metadata = None
        if str(problem) != self._trouble:
            self._trouble = str(problem)
            logger.warning("no election of %s: %s", self._group, problem)
        self._stopping.wait(RETRY_SECONDS)

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=encode_candidate(self._candidate))],
        )
        joined = self._ask(request, JoinGroupResponse)
        if joined.error_code == Error.MEMBER_ID_REQUIRED:
            self._member = joined.member_id
        _check(joined.error_code)
        self._member, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            found = ((member.member_id, decode_candidate(member.metadata)) for member in joined.members)
            chosen = choose({name: who for name, who in found if who is not None})
            assignments = [
                SyncGroupRequestAssignment(member_id=name, assignment=encode_assignment(assignment))
                for name, assignment in chosen.items()
            ]
        sent = self._monotonic()
        request_sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        synced = self._ask(request_sync, SyncGroupResponse)
        _check(synced.error_code)
        assignment = decode_assignment(synced.assignment)
        if assignment.error == DUPLICATE_URLS:
            raise ClientError(
                f"two registries say that they are {self._candidate.url}, or another two share an address"
            )
        self._trouble = ""
        self._good_until = sent + SESSION_MS / 1000
        self._assignment = assignment

    def _stay(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member)
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            sent = self._monotonic()
            _check(self._ask(request, HeartbeatResponse).error_code)
            self._good_until = sent + SESSION_MS / 1000

    def _leave(self) -> None:
        if not self._member:
            return
        member = MemberIdentity(member_id=self._member)
        try:
            self._ask(
                LeaveGroupRequest(group_id=self._group, member_id=self._member, members=[member]), LeaveGroupResponse
            )
        except ClientError:
            return  # its session ends, too

    def _ask(self, request: object, response: type[R]) -> R:
        if self._coordinator is None:
            self._coordinator = find_coordinator(self._client, KeyType.GROUP, self._group)
        return self._client.call_broker(self._coordinator, request, response)


def _check(error_code: int) -> None:
    if error_code:
        raise refusal(error_code)
