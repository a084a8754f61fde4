"""A roll: what to do next, from what is seen. Pure: the time, the cluster and the state of the command are arguments.

For one broker after the other, the controller last:

1. CLEAR    wait until the cluster is whole and can do without the broker.
2. LEAVING  it is in maintenance: wait until it leads nothing that another replica could lead.
3. COMMAND  the command runs.
4. BACK     wait until the broker is registered under a new epoch.
5. SYNC     wait until everything is in sync.
6. LEADERS  its maintenance is over: wait until it leads again what it should.

Every wait has a limit. What looks as if the command did something else than to restart this broker (another one was
restarted, or is away) ends the roll, as soon as the command has ended: one that is ended between its stop and its start
leaves a broker down. A roll that has stopped goes on with the broker that it was at; one that
was restarted meanwhile, by whomever, is not restarted again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.operations.doctor.findings import brokers_text, some
from ottla.operations.rolling.facts import (
    UNKNOWN_EPOCH,
    Look,
    led_beside_others,
    next_broker,
    not_led,
    not_whole,
    obstacle,
)

ELECT_AGAIN_MS: Final = 5_000
MARGIN_MS: Final = 60_000
NO_ANSWER: Final = "the cluster does not answer"


class Phase(StrEnum):
    """Where a roll is with its broker."""

    CLEAR = "clear"
    LEAVING = "leaving"
    COMMAND = "command"
    BACK = "back"
    SYNC = "sync"
    LEADERS = "leaders"


class Act(StrEnum):
    """What the driver is to do."""

    WAIT = "wait"
    MAINTAIN = "maintain"  # put the broker in maintenance
    RUN = "run"  # run the command for it
    RELEASE = "release"  # end its maintenance and have it lead again
    NEXT = "next"  # it is done: take a fresh look and go on
    STOP = "stop"  # a doubt, or the end of patience
    FINISH = "finish"


class Step(NamedTuple):
    """One answer of the machine."""

    act: Act
    broker: int = -1
    why: str = ""
    until_ms: int = 0  # of MAINTAIN, by the clock on the wall


class Command(NamedTuple):
    """How far the command is; `code` None: it runs."""

    code: int | None = None
    words: str = ""  # its last words


class Left(NamedTuple):
    """What a roll leaves behind that ends before its end."""

    broker: int | None
    is_maintained: bool = False
    is_cut: bool = False  # its command ran, and was ended

    def sentences(self) -> list[str]:
        found = []
        if self.is_cut:
            found.append(f"The command for broker {self.broker} was ended halfway: see whether the broker runs.")
        if self.is_maintained:
            found.append(
                f"Broker {self.broker} stays in maintenance for a while; to end that: "
                f"ottla cluster maintenance {self.broker} --end"
            )
        return found


class Limits(NamedTuple):
    """How long anything may take."""

    wait_ms: int = 600_000
    command_ms: int = 300_000


@dataclass
class RollState:
    """What has to outlive the tool."""

    brokers: list[int]
    done: list[int] = field(default_factory=list)
    at: int | None = None
    phase: Phase = Phase.CLEAR
    epochs: dict[int, int] = field(default_factory=dict)  # of all brokers, before the command


class Roll:
    """One roll. `decide` may be called as often as one likes; it changes nothing but the state of the roll."""

    def __init__(
        self, state: RollState, limits: Limits, *, has_maintenance: bool = True, may_interrupt: bool = False
    ) -> None:
        self.state = state
        self.has_maintenance = has_maintenance
        self._limits = limits
        self._may_interrupt = may_interrupt
        self._since_ms: int | None = None  # when the phase began
        self._was_away = False
        self._doubted: str | None = None  # seen while the command ran
        self._elected_ms: int | None = None
        self._is_resumed = state.phase in (Phase.COMMAND, Phase.BACK)
        if self._is_resumed:
            state.phase = Phase.BACK
        elif state.phase is Phase.LEAVING:
            state.phase = Phase.CLEAR

    def decide(self, look: Look | None, now_ms: int, command: Command | None = None, wall_ms: int = 0) -> Step:
        """What to do next. `look` None: the cluster could not be asked; `command` None: none was started."""
        state = self.state
        if self._since_ms is None:
            self._since_ms = now_ms
        if state.phase is Phase.COMMAND:
            return self._command(look, now_ms, command)
        if look is None:
            return self._wait(NO_ANSWER, now_ms)
        if state.at is None:
            left = set(state.brokers) - set(state.done)
            if not left:
                return Step(Act.FINISH)
            state.at = next_broker(left, look.controller_id)
        if self._is_resumed:
            self._resume(look, now_ms)
        return {
            Phase.CLEAR: self._clear,
            Phase.LEAVING: self._leaving,
            Phase.BACK: self._back,
            Phase.SYNC: self._sync,
            Phase.LEADERS: self._leaders,
        }[state.phase](look, now_ms, wall_ms)

    def is_maintained(self, seen: Collection[int]) -> bool:
        """Whether the broker that it is at is in maintenance; `seen`: who was, at the last look that told."""
        if self.state.at is None or not self.has_maintenance or self.state.phase is Phase.LEADERS:
            return False
        return self.state.phase is Phase.LEAVING or self.state.at in seen

    def _resume(self, look: Look, now_ms: int) -> None:
        """Nobody knows what has become of the command: the broker's epoch tells whether it is needed again."""
        self._is_resumed = False
        broker, before = self._at(), self.state.epochs
        self.state.epochs = {
            **look.epochs,
            broker: before.get(broker, UNKNOWN_EPOCH),
        }  # whoever else was restarted since
        if broker in look.brokers and not self._is_restarted(look):
            self._enter(Phase.CLEAR, now_ms)

    # ---- the phases

    def _clear(self, look: Look, now_ms: int, wall_ms: int) -> Step:
        broker = self._at()
        found = obstacle(look, broker, may_interrupt=self._may_interrupt)
        if found is not None:
            return self._wait(found.reason, now_ms) if found.may_pass else self._stop(found.reason)
        self.state.epochs = look.epochs
        self._enter(Phase.LEAVING, now_ms)
        if not self.has_maintenance:
            return self._run(now_ms)
        until_ms = wall_ms + 3 * self._limits.wait_ms + self._limits.command_ms + MARGIN_MS
        return Step(Act.MAINTAIN, broker, until_ms=until_ms)

    def _leaving(self, look: Look, now_ms: int, _: int) -> Step:
        broker = self._at()
        found = obstacle(look, broker, may_interrupt=self._may_interrupt)
        if found is not None:
            return self._wait(found.reason, now_ms)
        led = led_beside_others(look, broker)
        if led and self.has_maintenance:
            return self._wait(f"broker {broker} still leads {some(map(str, led))}", now_ms)
        return self._run(now_ms)

    def _run(self, now_ms: int) -> Step:
        self._was_away = False
        self._doubted = None
        self._enter(Phase.COMMAND, now_ms)
        return Step(Act.RUN, self._at())

    def _command(self, look: Look | None, now_ms: int, command: Command | None) -> Step:
        """Nothing but its own time ends a command, whatever is seen and also when nobody answers."""
        broker = self._at()
        doubt = self._doubted = (self._doubt(look) if look is not None else None) or self._doubted
        if command is None or command.code is None:
            if now_ms - (self._since_ms or 0) >= self._limits.command_ms:
                seconds = self._limits.command_ms // 1000
                return self._stop(
                    also(doubt, f"the command for broker {broker} still runs after {seconds} s, and is ended")
                )
            return Step(Act.WAIT, broker, "the command runs" if doubt is None else f"{doubt}; the command still runs")
        if command.code:
            return self._stop(also(doubt, command_text(broker, command)))
        if doubt is not None:
            return self._stop(doubt)
        self._enter(Phase.BACK, now_ms)
        return self._wait(NO_ANSWER, now_ms) if look is None else self._back(look, now_ms, 0)

    def _back(self, look: Look, now_ms: int, _: int) -> Step:
        doubt = self._doubt(look)
        if doubt is not None:
            return self._stop(doubt)
        if self._is_restarted(look):
            self._enter(Phase.SYNC, now_ms)
            return self._sync(look, now_ms, 0)
        broker = self._at()
        if broker not in look.brokers:
            return self._wait(f"broker {broker} is not back", now_ms)
        return self._wait(f"the command ended well, but broker {broker} has not been restarted", now_ms)

    def _sync(self, look: Look, now_ms: int, _: int) -> Step:
        found = not_whole(look)
        if found is not None:
            return self._wait(found.reason, now_ms)
        self._enter(Phase.LEADERS, now_ms)
        self._elected_ms = now_ms
        return Step(Act.RELEASE, self._at())

    def _leaders(self, look: Look, now_ms: int, _: int) -> Step:
        broker = self._at()
        strayed = not_led(look, broker)
        if strayed:
            if self._elected_ms is None or now_ms - self._elected_ms >= ELECT_AGAIN_MS:
                self._elected_ms = now_ms
                return Step(Act.RELEASE, broker)
            return self._wait(f"broker {broker} does not lead {some(map(str, strayed))} again", now_ms)
        self.state.done.append(broker)
        self.state.at = None
        self.state.epochs = {}
        self._enter(Phase.CLEAR, now_ms)
        return Step(Act.NEXT, broker)

    # ---- what is seen

    def _doubt(self, look: Look) -> str | None:
        """Something else happens than the restart of this one broker."""
        broker, before = self._at(), self.state.epochs
        if broker not in look.brokers:
            self._was_away = True
        others = [other for other in before if other != broker]
        restarted = [other for other in others if is_other_life(before, look, other)]
        if restarted:
            what = f"{brokers_text(restarted)} was restarted"
            return f"{what}, where broker {broker} alone should be: does the command name the right broker?"
        away = [other for other in others if other not in look.brokers]
        if away:
            return f"{brokers_text(away)} is away while broker {broker} should be restarted"
        return None

    def _is_restarted(self, look: Look) -> bool:
        broker, before = self._at(), self.state.epochs
        if broker not in look.brokers:
            return False
        if UNKNOWN_EPOCH in (before.get(broker, UNKNOWN_EPOCH), look.brokers[broker].epoch):
            return self._was_away  # a version that does not tell its epoch: it was seen to be away
        return is_other_life(before, look, broker)

    # ---- small things

    def _at(self) -> int:
        assert self.state.at is not None
        return self.state.at

    def _enter(self, phase: Phase, now_ms: int) -> None:
        self.state.phase = phase
        self._since_ms = now_ms

    def _wait(self, why: str, now_ms: int) -> Step:
        if now_ms - (self._since_ms or 0) >= self._limits.wait_ms:
            return self._stop(f"{why}, and that has not changed for {self._limits.wait_ms // 1000} s")
        return Step(Act.WAIT, -1 if self.state.at is None else self.state.at, why)

    def _stop(self, why: str) -> Step:
        return Step(Act.STOP, -1 if self.state.at is None else self.state.at, why)

    def __repr__(self) -> str:
        return f"<Roll {self.state.phase} at={self.state.at} done={self.state.done}>"


def is_other_life(before: Mapping[int, int], look: Look, broker: int) -> bool:
    """Whether a broker has registered again since."""
    seen = look.brokers.get(broker)
    known = before.get(broker, UNKNOWN_EPOCH)
    return seen is not None and UNKNOWN_EPOCH not in (known, seen.epoch) and seen.epoch != known


def also(doubt: str | None, reason: str) -> str:
    return reason if doubt is None else f"{doubt}; {reason}"


def command_text(broker: int | None, command: Command) -> str:
    said = f": {command.words}" if command.words else ""
    return f"the command for broker {broker} ended with exit code {command.code}{said}"
