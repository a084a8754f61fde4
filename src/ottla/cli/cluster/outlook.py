"""What a plan means, for people: each broker before and after, bytes to copy, the time that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.counting import counted
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import DISK, IN, OUT, BrokerFigures, figures_of, skew
from ottla.cli.tables import print_table
from ottla.cli.terminal import say, warn
from ottla.operations.reassignment.carrying import seconds_to_copy
from ottla.operations.reassignment.facts import ClusterFacts, largest_replicas
from ottla.operations.reassignment.progress import bytes_to_copy
from ottla.operations.sizes import size_text

COLUMNS = ("Broker", "Replicas", "Leaders", "On disk", "In/s", "Out/s")
NOUNS = {DISK: "bytes on disk", IN: "bytes in", OUT: "bytes out"}
MINUTE, HOUR = 60, 3600


def show(
    facts: ClusterFacts,
    rows: Mapping[TopicPartition, Sequence[int]],
    throttle: int | None,
    brokers: Sequence[int] | None = None,
) -> None:
    """A table of all brokers, a row of the skew, and what it costs."""
    shown = sorted({*facts.brokers, *facts.away}) if brokers is None else sorted(brokers)
    before = figures_of(facts.loads, {}, shown)
    after = figures_of(facts.loads, rows, shown)
    table = [_line(one, other) for one, other in zip(before, after, strict=True)]
    print_table(COLUMNS, [*table, _skews(before, after)], COLUMNS)
    if not rows:
        return
    now = facts.rows
    copies = bytes_to_copy(rows, now, facts.sizes)
    unknown = sum(size is None for size in copies.values())
    size = sum(size for size in copies.values() if size)
    copying = sum(bool(set(row) - set(now[name])) for name, row in rows.items())
    words = [f"{counted(copying, 'partition')} to copy, {size_text(size)}"]
    if unknown:
        words.append(f"{counted(unknown, 'partition')} of unknown size")
    if len(rows) > copying:
        words.append(f"{counted(len(rows) - copying, 'partition')} to be led by another replica, or to lose one")
    seconds = seconds_to_copy(rows, now, largest_replicas(now, facts.sizes), throttle)
    if seconds is not None and throttle is not None and size:
        words.append(f"about {time_text(seconds)} at {size_text(throttle)}/s a broker")
    say("; ".join(words) + ".")


def tell_unknown(facts: ClusterFacts, pinned: int = 0, unknown: frozenset[int] = frozenset()) -> None:
    """What could not be looked at: a plan that leaves something out says so."""
    if facts.silent:
        warn(f"broker {ids(facts.silent)} does not tell what it holds.")
    if pinned:
        warn(f"{counted(pinned, 'partition', 'stays')} in place: nobody tells the size.")
    if unknown:
        nouns = " and ".join(NOUNS[resource] for resource in sorted(unknown))
        reason = f": the metrics of broker {ids(facts.unmeasured)} are not in reach" if facts.unmeasured else ""
        warn(f"{nouns} are not known everywhere and are no aim of this plan{reason}.")


def ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def time_text(seconds: float) -> str:
    """Rough: nobody needs the seconds of an hour."""
    if seconds < MINUTE:
        return f"{max(1, round(seconds))} s"
    if seconds < HOUR:
        return f"{round(seconds / MINUTE)} min"
    return f"{int(seconds // HOUR)} h {round(seconds % HOUR / MINUTE)} min"


def _line(before: BrokerFigures, after: BrokerFigures) -> tuple[str, ...]:
    def change(one: str, other: str) -> str:
        return one if one == other else f"{one} → {other}"

    return (
        str(before.broker),
        change(str(before.replicas), str(after.replicas)),
        change(str(before.leaders), str(after.leaders)),
        *(
            change(_size(one), _size(other))
            for one, other in (
                (before.disk_bytes, after.disk_bytes),
                (before.bytes_in, after.bytes_in),
                (before.bytes_out, after.bytes_out),
            )
        ),
    )


def _size(value: float | None) -> str:
    return "?" if value is None else size_text(int(value))


def _skews(before: Sequence[BrokerFigures], after: Sequence[BrokerFigures]) -> tuple[str, ...]:
    """How far the most and the least are apart, in percent of the mean."""

    def percent(values: Sequence[float | None]) -> str:
        found = skew(values)
        return "?" if found is None else f"{found:.0%}"

    cells = []
    for place in range(1, len(BrokerFigures._fields)):
        one, other = (percent([figure[place] for figure in figures]) for figures in (before, after))
        cells.append(one if one == other else f"{one} → {other}")
    return ("skew", *cells)
