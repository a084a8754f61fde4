"""Crash points of a run: before or after the calls that store state. Works in the driver's own process.

An exception inside a batch ends the query like a failure; an exception while the command polls its queries ends the
command like a kill, and the player stops the remaining queries.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.pipelines.running import beginning, dead_letters, followed_query, late_letters
from ottla.pipelines.running.delivery import Delivery
from ottla.pipelines.sinks.files import FilesSink
from ottla.pipelines.sinks.sqlite import SqliteSession
from ottla.pipelines.sinks.staging import LocalStaging
from ottla.pipelines.sinks.topic import ExactlyOnceTopic

WORD = "the random test lets it die here"

OWNERS: dict[str, list[tuple[Any, str]]] = {
    "a sink gets its rows": [(Delivery, "_write")],
    "rows are pinned": [(LocalStaging, "_write_manifest")],
    "rows are released": [(LocalStaging, "release")],
    "SQLite commits": [(SqliteSession, "commit")],
    "files are put in place": [(FilesSink, "_publish_folder")],
    "a topic gets its rows": [(ExactlyOnceTopic, "_run")],
    "a note is written": [(each, "write_note") for each in (beginning, dead_letters, late_letters)],
    "offsets are committed": [(followed_query, "commit_progress")],
}
POINTS = [f"{when}: {what}" for what in OWNERS for when in ("before", "after")]


class DiedError(Exception):
    """Not caught by any of our code."""


@contextmanager
def failing(point: str, hits: int, strike: Callable[[], None] | None = None) -> Iterator[list[int]]:
    """When the point is reached for the given time `strike` is called, or DiedError raised; the list has how often it
    was reached."""
    when, _, what = point.partition(": ")
    reached = [0]

    def come() -> None:
        reached[0] += 1
        if reached[0] == hits:
            if strike is None:
                raise DiedError(WORD)
            strike()

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if when == "before":
                come()
            result = function(*arguments, **named)
            if when == "after":
                come()
            return result

        return call

    before = [(owner, name, getattr(owner, name)) for owner, name in OWNERS[what]]
    for owner, name, function in before:
        setattr(owner, name, wrapped(function))
    try:
        yield reached
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the main thread."""

    def on_alarm(_number: int, _frame: object) -> None:
        raise TimeoutError(f"a run did not end in {seconds} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
