"""Members of consumer groups over raw sockets: they join, sync and heartbeat like clients, one request at a time."""

import select
import time

from bench import group_wire as wire
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Connection, Target

SESSION_MS = 45_000
HEARTBEAT_SECONDS = 0.1  # short, so that the rebalance time is the broker's and not the members'
SETTLE_SECONDS_MAX = 120.0
POLL_SECONDS_MAX = 10.0
READY_SECONDS_MAX = 60.0
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 79, 27, 25, 22
COMMITS_AHEAD = 50


class Member:
    """One connection. `on_answer` reads an answer and sends the next request; `is_settled` if there is none."""

    def __init__(self, target: Target, group: str) -> None:
        self.connection = Connection(target)
        self.socket = self.connection.socket
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.group_size = 0  # from the leader's JoinGroup answer
        self.is_settled = False
        self.is_waiting = False
        self._asked = 0

    def __repr__(self) -> str:
        return f"<Member {self.member_id} of {self.group}, generation {self.generation}, settled {self.is_settled}>"

    def join(self) -> None:
        self.is_settled = False
        self._send(wire.JOIN_GROUP, wire.join_request(self.group, self.member_id, SESSION_MS))

    def heartbeat(self) -> None:
        self._send(wire.HEARTBEAT, wire.heartbeat_request(self.group, self.generation, self.member_id))

    def on_answer(self) -> None:
        answer = self.connection.receive()
        self.is_waiting = False
        if self._asked == wire.JOIN_GROUP:
            self._on_joined(wire.read_join(answer))
            return
        error = wire.ERROR.unpack_from(answer, wire.ERROR_POSITION)[0]
        if error in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            self.join()
        elif error:
            raise BenchError(f"a member was answered with error {error}")
        else:
            self.is_settled = True

    def _on_joined(self, joined: wire.Joined) -> None:
        self.member_id = joined.member_id
        if joined.error == MEMBER_ID_REQUIRED:
            self.join()
        elif joined.error:
            raise BenchError(f"JoinGroup was answered with error {joined.error}")
        else:
            self.generation = joined.generation
            self.group_size = len(joined.members)
            self._send(wire.SYNC_GROUP, wire.sync_request(self.group, self.generation, self.member_id, joined.members))

    def _send(self, key: int, request: bytes) -> None:
        self._asked = key
        self.is_waiting = True
        self.connection.send(request)


def join(target: Target, groups: int, size: int) -> Figures:
    """All members join at once; the time until every group has all of its members in one generation."""
    wait_for_coordinator(target, "bench", wire.GROUP)
    seconds, members = _settle(target, groups, size)
    _close(members)
    return {"seconds": seconds}


def heartbeat_and_commit(
    target: Target, topic: str, groups: int, size: int, warmup_s: float, seconds: float
) -> dict[str, Figures]:
    """Every member has one request in flight: heartbeats for a while, then commits of one offset."""
    wait_for_coordinator(target, "bench", wire.GROUP)
    _, members = _settle(target, groups, size)
    beats = [wire.heartbeat_request(each.group, each.generation, each.member_id) for each in members]
    commits = [wire.commit_request(each.group, each.generation, each.member_id, topic, range(1), 1) for each in members]
    figures = {}
    for name, requests, position in (
        ("heartbeat", beats, wire.ERROR_POSITION),
        ("commit", commits, wire.commit_error_position(topic)),
    ):
        _repeat(target, members, requests, position, warmup_s)
        figures[name] = _repeat(target, members, requests, position, seconds)
    _close(members)
    return figures


def wait_for_coordinator(target: Target, key: str, kind: int) -> None:
    """The first request creates the internal topic."""
    end = time.monotonic() + READY_SECONDS_MAX
    with Connection(target) as connection:
        while wire.ERROR.unpack_from(connection.call(wire.find_coordinator_request(key, kind)), wire.ERROR_POSITION)[0]:
            if time.monotonic() > end:
                raise BenchError("no coordinator")
            time.sleep(0.05)
        while kind == wire.GROUP and group_error(connection, key):
            if time.monotonic() > end:
                raise BenchError("the coordinator is not ready")
            time.sleep(0.05)


def group_error(connection: Connection, group: str) -> int:
    """0 when the coordinator of the group answers."""
    answer = connection.call(wire.fetch_nothing_request(group))
    return int(wire.ERROR.unpack_from(answer, len(answer) - 2)[0])


def _settle(target: Target, groups: int, size: int) -> tuple[float, list[Member]]:
    stamp = time.time_ns()
    members = [Member(target, f"bench-{stamp}-{number % groups}") for number in range(groups * size)]
    poll = select.epoll()
    by_handle = {member.socket.fileno(): member for member in members}
    for handle in by_handle:
        poll.register(handle, select.EPOLLIN)
    began = time.perf_counter()
    next_beat = began + HEARTBEAT_SECONDS
    for member in members:
        member.join()
    while not _is_settled(members, groups, size):
        for handle, _ in poll.poll(0.01):
            by_handle[handle].on_answer()
        now = time.perf_counter()
        if now > began + SETTLE_SECONDS_MAX:
            raise BenchError(f"{groups} groups have not settled after {SETTLE_SECONDS_MAX:.0f} s")
        if now >= next_beat:
            next_beat = now + HEARTBEAT_SECONDS
            for member in members:
                if member.is_settled and not member.is_waiting:
                    member.heartbeat()
    seconds = time.perf_counter() - began
    poll.close()
    for member in members:
        if member.is_waiting:
            member.on_answer()
    return seconds, members


def _is_settled(members: list[Member], groups: int, size: int) -> bool:
    if not all(member.is_settled for member in members):
        return False
    generations = {(member.group, member.generation) for member in members}
    return len(generations) == groups and sum(member.group_size == size for member in members) == groups


def _repeat(
    target: Target, members: list[Member], requests: list[bytes], error_position: int, seconds: float
) -> Figures:
    poll = select.epoll()
    lanes = {each.socket.fileno(): (each.socket, request) for each, request in zip(members, requests, strict=True)}
    sizes = {}
    for handle, (socket, request) in lanes.items():
        socket.sendall(request)
        sizes[handle] = len(socket.recv(4096))
        poll.register(handle, select.EPOLLIN)
    sent_ns: dict[int, int] = {}
    latencies: list[int] = []
    clock = time.perf_counter_ns
    position = 4 + error_position
    with Meter(target.pid) as meter:
        end = clock() + int(seconds * 1e9)
        for handle, (socket, request) in lanes.items():
            sent_ns[handle] = clock()
            socket.send(request)
        busy = len(lanes)
        while busy:
            events = poll.poll(POLL_SECONDS_MAX)
            if not events:
                raise BenchError(f"no answer within {POLL_SECONDS_MAX:.0f} s")
            for handle, _ in events:
                socket, request = lanes[handle]
                answer = socket.recv(4096)
                if len(answer) != sizes[handle] or answer[position] or answer[position + 1]:
                    raise BenchError(f"an answer of {len(answer)} bytes, or with an error")
                now = clock()
                latencies.append(now - sent_ns[handle])
                if now < end:
                    sent_ns[handle] = now
                    socket.send(request)
                else:
                    busy -= 1
    poll.close()
    return meter.figures(requests=len(latencies)) | latency_figures(latencies)


def _close(members: list[Member]) -> None:
    for member in members:
        member.connection.close()
