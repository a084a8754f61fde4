"""The state machine of a rolling restart. Pure: time, cluster state and command state are arguments.

For each broker in turn, the controller last:
1. CLEAR    wait until the cluster is healthy and can do without the broker.
2. LEAVING  in maintenance: wait until it leads nothing that another replica could lead.
3. COMMAND  the restart command runs.
4. BACK     wait until the broker is registered with a new broker epoch.
5. SYNC     wait until all replicas are in sync.
6. LEADERS  maintenance is over: wait until it leads its preferred partitions again.

Every wait has a limit. If the command seems to do something else than restart this broker (another one was restarted,
or is down), the roll stops once the command has ended: killing it halfway could leave a broker down. A stopped roll
continues with its current broker; one that was restarted meanwhile is not restarted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.operations.doctor.findings import brokers_text, shorten_list

UNKNOWN_EPOCH: Final = -1  # brokers of versions that do not report it
NO_LEADER: Final = -1


class RegisteredBroker(NamedTuple):
    """A registered broker."""

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = UNKNOWN_EPOCH  # changes with every restart


class ClusterState(NamedTuple):
    """The cluster state as the controller reports it."""

    controller_id: int
    brokers: Mapping[int, RegisteredBroker]
    topics: Sequence[Topic]
    moving: frozenset[TopicPartition] = frozenset()
    min_isr_by_topic: Mapping[str, int] = {}  # min.insync.replicas by topic; 1 if unknown
    in_maintenance: frozenset[int] = frozenset()  # brokers in maintenance

    @property
    def epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.brokers.values()}

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for topic in self.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.number), partition


class Obstacle(NamedTuple):
    """Why a broker should not be stopped now."""

    reason: str
    is_temporary: bool = True  # False: waiting does not help


def all_brokers(look: ClusterState) -> set[int]:
    """All brokers that are registered or hold replicas."""
    return {*look.brokers, *(replica for _, partition in look.partitions() for replica in partition.replicas)}


def health_problem(look: ClusterState) -> Obstacle | None:
    """Why the cluster is not healthy: all brokers up, all partitions led, none moving, all replicas in sync."""
    if look.controller_id < 0:
        return Obstacle("the cluster has no controller")
    away = all_brokers(look) - set(look.brokers)
    if away:
        return Obstacle(f"{brokers_text(away)} {'is' if len(away) == 1 else 'are'} down")
    offline = [str(name) for name, partition in look.partitions() if partition.leader == NO_LEADER]
    if offline:
        return Obstacle(f"{shorten_list(offline)}: no leader")
    if look.moving:
        return Obstacle(f"replicas are being moved: {shorten_list(sorted(map(str, look.moving)))}")
    behind = [str(name) for name, partition in look.partitions() if set(partition.isr) != set(partition.replicas)]
    if behind:
        return Obstacle(f"not in sync: {shorten_list(behind)}")
    return None


def restart_obstacle(look: ClusterState, broker_id: int, *, may_interrupt: bool = False) -> Obstacle | None:
    """Why this broker must not be stopped now; `may_interrupt` accepts unavailable partitions."""
    broken = health_problem(look)
    if broken is not None:
        return broken
    if broker_id not in look.brokers:  # it holds no replicas, otherwise the check above would report it
        return Obstacle(f"broker {broker_id} is down")
    others = look.in_maintenance - {broker_id}
    if others:
        return Obstacle(f"{brokers_text(others)} {'is' if len(others) == 1 else 'are'} in maintenance")
    return None if may_interrupt else find_interruption(look, [broker_id])


def find_interruption(look: ClusterState, broker_ids: Iterable[int]) -> Obstacle | None:
    """The first of these brokers whose partitions would become unavailable. Waiting does not help, so all are checked
    first.
    """
    for broker_id in broker_ids:
        needed = unwritable_without(look, broker_id)
        if needed:
            return Obstacle(
                f"without broker {broker_id} {shorten_list(map(str, needed))} could not be written "
                "(min.insync.replicas, or "
                "no other replica): give them more replicas, or accept the interruption (--allow-interruption)",
                is_temporary=False,
            )
    return None


def unwritable_without(look: ClusterState, broker_id: int) -> list[TopicPartition]:
    """Partitions with too few replicas without this broker, even if all others are in sync."""
    return [
        name
        for name, partition in look.partitions()
        if broker_id in partition.replicas
        and len(partition.replicas) - 1 < max(1, look.min_isr_by_topic.get(name.topic, 1))
    ]


def movable_leaders(look: ClusterState, broker_id: int) -> list[TopicPartition]:
    """Partitions that the broker leads though another in-sync replica could."""
    return [
        name for name, partition in look.partitions() if partition.leader == broker_id and len(set(partition.isr)) > 1
    ]


def missing_preferred_leaders(look: ClusterState, broker_id: int) -> list[TopicPartition]:
    """Partitions that prefer this broker as leader but have another one."""
    return [
        name
        for name, partition in look.partitions()
        if partition.replicas[:1] == [broker_id] and partition.leader != broker_id
    ]


def next_broker(left: Collection[int], controller_id: int) -> int:
    """The controller comes last: during a controller change no leaders are elected."""
    return min(left, key=lambda broker_id: (broker_id == controller_id, broker_id))


def restart_order(wanted: Collection[int], controller_id: int) -> list[int]:
    left, found = set(wanted), []
    while left:
        found.append(next_broker(left, controller_id))
        left.remove(found[-1])
    return found


# ---- state machine
ELECT_AGAIN_MS: Final = 5_000
MARGIN_MS: Final = 60_000
NO_ANSWER: Final = "the cluster does not answer"


class Phase(StrEnum):
    """The phase of the current broker."""

    CLEAR = "clear"
    LEAVING = "leaving"
    COMMAND = "command"
    BACK = "back"
    SYNC = "sync"
    LEADERS = "leaders"


class Action(StrEnum):
    """The next action of the driver."""

    WAIT = "wait"
    MAINTAIN = "maintain"  # begin maintenance of the broker
    RUN = "run"  # run the command for it
    RELEASE = "release"  # end its maintenance and elect it as preferred leader
    NEXT = "next"  # done: read the cluster again and continue
    STOP = "stop"  # a doubt, or a timeout
    FINISH = "finish"


class Step(NamedTuple):
    """A decision of the state machine."""

    action: Action
    broker: int = -1
    reason: str = ""
    until_ms: int = 0  # of MAINTAIN, in wall-clock time


class CommandState(NamedTuple):
    """The state of the command; `code` is None while it runs."""

    code: int | None = None
    output: str = ""  # the end of its output


class Leftovers(NamedTuple):
    """What a roll leaves behind when it ends early."""

    broker: int | None
    is_maintained: bool = False
    was_killed: bool = False  # its command was killed

    def messages(self) -> list[str]:
        found = []
        if self.was_killed:
            found.append(f"The command for broker {self.broker} was ended halfway: see whether the broker runs.")
        if self.is_maintained:
            found.append(
                f"Broker {self.broker} stays in maintenance for a while; to end that: "
                f"ottla cluster maintenance {self.broker} --end"
            )
        return found


class Limits(NamedTuple):
    """Timeouts."""

    wait_ms: int = 600_000
    command_ms: int = 300_000


@dataclass
class RollState:
    """The persistent state of a roll."""

    brokers: list[int]
    done: list[int] = field(default_factory=list)
    current: int | None = None
    phase: Phase = Phase.CLEAR
    epochs: dict[int, int] = field(default_factory=dict)  # of all brokers, before the command


class RollingRestart:
    """One rolling restart. `decide` may be called any number of times; it changes only the state of the roll."""

    def __init__(
        self, state: RollState, limits: Limits, *, has_maintenance: bool = True, may_interrupt: bool = False
    ) -> None:
        self.state = state
        self.has_maintenance = has_maintenance
        self._limits = limits
        self._may_interrupt = may_interrupt
        self._since_ms: int | None = None  # start of the phase
        self._was_away = False
        self._command_doubt: str | None = None  # observed while the command ran
        self._elected_ms: int | None = None
        self._is_resumed = state.phase in (Phase.COMMAND, Phase.BACK)
        if self._is_resumed:
            state.phase = Phase.BACK
        elif state.phase is Phase.LEAVING:
            state.phase = Phase.CLEAR

    def decide(
        self, look: ClusterState | None, now_ms: int, command: CommandState | None = None, wall_ms: int = 0
    ) -> Step:
        """The next step. `look` is None if the cluster did not respond; `command` is None if none was started."""
        state = self.state
        if self._since_ms is None:
            self._since_ms = now_ms
        if state.phase is Phase.COMMAND:
            return self._command(look, now_ms, command)
        if look is None:
            return self._wait(NO_ANSWER, now_ms)
        if state.current is None:
            left = set(state.brokers) - set(state.done)
            if not left:
                return Step(Action.FINISH)
            state.current = next_broker(left, look.controller_id)
        if self._is_resumed:
            self._resume(look, now_ms)
        return {
            Phase.CLEAR: self._wait_for_health,
            Phase.LEAVING: self._wait_for_leadership_moves,
            Phase.BACK: self._wait_for_registration,
            Phase.SYNC: self._wait_for_isr,
            Phase.LEADERS: self._wait_for_leaders,
        }[state.phase](look, now_ms, wall_ms)

    def is_maintained(self, seen: Collection[int]) -> bool:
        """Whether the current broker is in maintenance; `seen`: the brokers that were, when last known."""
        if self.state.current is None or not self.has_maintenance or self.state.phase is Phase.LEADERS:
            return False
        return self.state.phase is Phase.LEAVING or self.state.current in seen

    def _resume(self, look: ClusterState, now_ms: int) -> None:
        """The result of the earlier command is unknown: the broker epoch decides whether to run it again."""
        self._is_resumed = False
        broker, before = self._current(), self.state.epochs
        self.state.epochs = {
            **look.epochs,
            broker: before.get(broker, UNKNOWN_EPOCH),
        }  # other brokers may have been restarted since
        if broker in look.brokers and not self._is_restarted(look):
            self._enter(Phase.CLEAR, now_ms)

    # ---- phases

    def _wait_for_health(self, look: ClusterState, now_ms: int, wall_ms: int) -> Step:
        broker = self._current()
        found = restart_obstacle(look, broker, may_interrupt=self._may_interrupt)
        if found is not None:
            return self._wait(found.reason, now_ms) if found.is_temporary else self._stop(found.reason)
        self.state.epochs = look.epochs
        self._enter(Phase.LEAVING, now_ms)
        if not self.has_maintenance:
            return self._run(now_ms)
        until_ms = wall_ms + 3 * self._limits.wait_ms + self._limits.command_ms + MARGIN_MS
        return Step(Action.MAINTAIN, broker, until_ms=until_ms)

    def _wait_for_leadership_moves(self, look: ClusterState, now_ms: int, _: int) -> Step:
        broker = self._current()
        found = restart_obstacle(look, broker, may_interrupt=self._may_interrupt)
        if found is not None:
            return self._wait(found.reason, now_ms)
        led = movable_leaders(look, broker)
        if led and self.has_maintenance:
            return self._wait(f"broker {broker} still leads {shorten_list(map(str, led))}", now_ms)
        return self._run(now_ms)

    def _run(self, now_ms: int) -> Step:
        self._was_away = False
        self._command_doubt = None
        self._enter(Phase.COMMAND, now_ms)
        return Step(Action.RUN, self._current())

    def _command(self, look: ClusterState | None, now_ms: int, command: CommandState | None) -> Step:
        """Only its own timeout ends a command, whatever is observed, also if the cluster does not respond."""
        broker = self._current()
        doubt = self._command_doubt = (self._doubt(look) if look is not None else None) or self._command_doubt
        if command is None or command.code is None:
            if now_ms - (self._since_ms or 0) >= self._limits.command_ms:
                seconds = self._limits.command_ms // 1000
                return self._stop(
                    join_reasons(doubt, f"the command for broker {broker} still runs after {seconds} s, and is ended")
                )
            return Step(
                Action.WAIT, broker, "the command runs" if doubt is None else f"{doubt}; the command still runs"
            )
        if command.code:
            return self._stop(join_reasons(doubt, command_text(broker, command)))
        if doubt is not None:
            return self._stop(doubt)
        self._enter(Phase.BACK, now_ms)
        return self._wait(NO_ANSWER, now_ms) if look is None else self._wait_for_registration(look, now_ms, 0)

    def _wait_for_registration(self, look: ClusterState, now_ms: int, _: int) -> Step:
        doubt = self._doubt(look)
        if doubt is not None:
            return self._stop(doubt)
        if self._is_restarted(look):
            self._enter(Phase.SYNC, now_ms)
            return self._wait_for_isr(look, now_ms, 0)
        broker = self._current()
        if broker not in look.brokers:
            return self._wait(f"broker {broker} is not back", now_ms)
        return self._wait(f"the command ended well, but broker {broker} has not been restarted", now_ms)

    def _wait_for_isr(self, look: ClusterState, now_ms: int, _: int) -> Step:
        found = health_problem(look)
        if found is not None:
            return self._wait(found.reason, now_ms)
        self._enter(Phase.LEADERS, now_ms)
        self._elected_ms = now_ms
        return Step(Action.RELEASE, self._current())

    def _wait_for_leaders(self, look: ClusterState, now_ms: int, _: int) -> Step:
        broker = self._current()
        strayed = missing_preferred_leaders(look, broker)
        if strayed:
            if self._elected_ms is None or now_ms - self._elected_ms >= ELECT_AGAIN_MS:
                self._elected_ms = now_ms
                return Step(Action.RELEASE, broker)
            return self._wait(f"broker {broker} does not lead {shorten_list(map(str, strayed))} again", now_ms)
        self.state.done.append(broker)
        self.state.current = None
        self.state.epochs = {}
        self._enter(Phase.CLEAR, now_ms)
        return Step(Action.NEXT, broker)

    # ---- observations

    def _doubt(self, look: ClusterState) -> str | None:
        """Something other than the restart of this broker happened."""
        broker, before = self._current(), self.state.epochs
        if broker not in look.brokers:
            self._was_away = True
        others = [other for other in before if other != broker]
        restarted = [other for other in others if has_new_epoch(before, look, other)]
        if restarted:
            what = f"{brokers_text(restarted)} was restarted"
            return f"{what}, where broker {broker} alone should be: does the command name the right broker?"
        away = [other for other in others if other not in look.brokers]
        if away:
            return f"{brokers_text(away)} is down while broker {broker} should be restarted"
        return None

    def _is_restarted(self, look: ClusterState) -> bool:
        broker, before = self._current(), self.state.epochs
        if broker not in look.brokers:
            return False
        if UNKNOWN_EPOCH in (before.get(broker, UNKNOWN_EPOCH), look.brokers[broker].epoch):
            return self._was_away  # a version without broker epochs: it was seen to be down
        return has_new_epoch(before, look, broker)

    # ---- helpers

    def _current(self) -> int:
        assert self.state.current is not None
        return self.state.current

    def _enter(self, phase: Phase, now_ms: int) -> None:
        self.state.phase = phase
        self._since_ms = now_ms

    def _wait(self, why: str, now_ms: int) -> Step:
        if now_ms - (self._since_ms or 0) >= self._limits.wait_ms:
            return self._stop(f"{why}, and that has not changed for {self._limits.wait_ms // 1000} s")
        return Step(Action.WAIT, -1 if self.state.current is None else self.state.current, why)

    def _stop(self, why: str) -> Step:
        return Step(Action.STOP, -1 if self.state.current is None else self.state.current, why)

    def __repr__(self) -> str:
        return f"<RollingRestart {self.state.phase} at={self.state.current} done={self.state.done}>"


def has_new_epoch(before: Mapping[int, int], look: ClusterState, broker: int) -> bool:
    """Whether a broker has registered again since."""
    seen = look.brokers.get(broker)
    known = before.get(broker, UNKNOWN_EPOCH)
    return seen is not None and UNKNOWN_EPOCH not in (known, seen.epoch) and seen.epoch != known


def join_reasons(doubt: str | None, reason: str) -> str:
    return reason if doubt is None else f"{doubt}; {reason}"


def command_text(broker: int | None, command: CommandState) -> str:
    said = f": {command.output}" if command.output else ""
    return f"the command for broker {broker} ended with exit code {command.code}{said}"
