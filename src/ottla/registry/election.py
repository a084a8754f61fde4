"""Leader election among registry nodes, as in Confluent's registry: by a Kafka group with protocol `sr`.

A thread is a member of the group: it joins, the group leader assigns, and a heartbeat every second keeps the
membership.
Rules:
1. Leadership lasts only as long as the group coordinator cannot have expired the member: one session timeout after the
   last successful heartbeat, measured from its sending. A paused node finds its leadership expired.
2. This only avoids useless requests. Exclusive writing is ensured by the producer epoch of the topic's writer.
3. During a rebalance there is no leader.
4. If the cluster does not answer, the thread retries; it is logged once.
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
from ottla.client.errors import ClientError, error_from_code
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
from ottla.registry.election_protocol import (
    DUPLICATE_URLS,
    NO_LEADER,
    RegistryIdentity,
    assign_leaders,
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
ANSWER_MS: Final = 5_000  # beyond the broker's own waiting time
REJOIN_ERRORS: Final = frozenset(
    {Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.MEMBER_ID_REQUIRED}
)
R = TypeVar("R")


class Election:
    """The group membership of this node, and the Leadership that results from it."""

    def __init__(
        self,
        make_client: Callable[[int], Client],
        group: str,
        candidate: RegistryIdentity,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = make_client(REBALANCE_MS + ANSWER_MS)
        self._group = group
        self._candidate = candidate
        self._monotonic = monotonic
        self._member = ""
        self._generation = -1
        self._assignment = NO_LEADER
        self._leadership_until = float("-inf")
        self._coordinator: int | None = None
        self._last_error = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    def __repr__(self) -> str:
        return f"<Election of {self._group}, {self._candidate.url}, generation {self._generation}>"

    # ---- thread-safe

    @property
    def is_leader(self) -> bool:
        assignment = self._assignment
        return assignment.member == self._member != "" and self._is_leadership_valid

    @property
    def leader_url(self) -> str | None:
        leader = self._assignment.leader
        return leader.url if leader is not None and self._is_leadership_valid else None

    @property
    def term(self) -> int:
        return self._generation

    @property
    def _is_leadership_valid(self) -> bool:
        return self._monotonic() < self._leadership_until

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds_max: float = 2.0) -> None:
        """Leave the group, so that the others need not wait for the session timeout."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds_max)

    # ---- in the member's thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._join()
                    self._send_heartbeats()
                except ClientError as problem:
                    self._drop_leadership(problem)
                except Exception as problem:  # our own bug; without an election no change would be possible any more
                    logger.exception("the election of %s restarts", self._group)
                    self._drop_leadership(ClientError(f"{type(problem).__name__}: {problem}"))
            self._leave()
        except Exception:
            logger.exception("the election of %s has ended", self._group)
        finally:
            self._assignment = NO_LEADER
            self._client.close()

    def _drop_leadership(self, problem: ClientError) -> None:
        """Drop the leadership and join again, after a pause unless the group asked for it."""
        self._assignment = NO_LEADER
        if problem.error is Error.UNKNOWN_MEMBER_ID:
            self._member = ""
        if problem.error in REJOIN_ERRORS:
            return
        self._coordinator = None
        self._client.metadata = None
        if str(problem) != self._last_error:
            self._last_error = str(problem)
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
        joined = self._call_coordinator(request, JoinGroupResponse)
        if joined.error_code == Error.MEMBER_ID_REQUIRED:
            self._member = joined.member_id
        _check(joined.error_code)
        self._member, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            found = ((member.member_id, decode_candidate(member.metadata)) for member in joined.members)
            chosen = assign_leaders({name: who for name, who in found if who is not None})
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
        synced = self._call_coordinator(request_sync, SyncGroupResponse)
        _check(synced.error_code)
        assignment = decode_assignment(synced.assignment)
        if assignment.error == DUPLICATE_URLS:
            raise ClientError(f"two registries have the address {self._candidate.url}, or two others share one")
        self._last_error = ""
        self._leadership_until = sent + SESSION_MS / 1000
        self._assignment = assignment

    def _send_heartbeats(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member)
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            sent = self._monotonic()
            _check(self._call_coordinator(request, HeartbeatResponse).error_code)
            self._leadership_until = sent + SESSION_MS / 1000

    def _leave(self) -> None:
        if not self._member:
            return
        member = MemberIdentity(member_id=self._member)
        try:
            self._call_coordinator(
                LeaveGroupRequest(group_id=self._group, member_id=self._member, members=[member]), LeaveGroupResponse
            )
        except ClientError:
            return  # its session expires anyway

    def _call_coordinator(self, request: object, response: type[R]) -> R:
        if self._coordinator is None:
            self._coordinator = find_coordinator(self._client, KeyType.GROUP, self._group)
        return self._client.call_broker(self._coordinator, request, response)


def _check(error_code: int) -> None:
    if error_code:
        raise error_from_code(error_code)
