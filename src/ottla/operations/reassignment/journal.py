"""The journal of a command that moves replicas, persisted before each request to the cluster.

After a crash or Ctrl-C the same command continues where it stopped. The journal has the original replicas, so the
command can be rolled back. There is one file per cluster, which prevents two conflicting plans at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.base.names import TopicPartition
from ottla.operations.errors import OperationError
from ottla.operations.reassignment.plan import list_in, number, partition_in

VERSION = 1

Rows = Mapping[TopicPartition, Sequence[int]]


class JournalError(OperationError):
    """The journal cannot be used, or belongs to another command."""


class Journal(NamedTuple):
    """One command: its plan, and the original replicas. `first` is moved before the rest."""

    command: str  # as typed, without options that do not affect the plan
    cluster_id: str
    started_ms: int
    before: dict[TopicPartition, list[int]]
    after: dict[TopicPartition, list[int]]
    throttle: int | None = None
    at_once: int = 1
    first: tuple[TopicPartition, ...] = ()
    throttled: tuple[int, ...] = ()  # brokers with a throttle that is not known to be removed
    is_rollback: bool = False
    is_ended: bool = False

    @property
    def topics(self) -> list[str]:
        return sorted({name.topic for name in self.after})

    @property
    def command_text(self) -> str:
        return f"ottla cluster {self.command}{' --rollback' if self.is_rollback else ''}"

    def rollback(self, now: Rows, started_ms: int) -> Journal:
        """The journal of the rollback: all partitions that differ from their original replicas."""
        rows = {name: list(now[name]) for name, row in self.before.items() if name in now and list(now[name]) != row}
        return self._replace(
            started_ms=started_ms,
            before=rows,
            after={name: self.before[name] for name in rows},
            first=(),
            is_rollback=True,
            is_ended=False,
        )


def journal_path(folder: Path, cluster_id: str) -> Path:
    """The file for a cluster; unsafe characters of its ID are replaced."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in cluster_id)
    return folder / f"{name}.json"


def write_journal(path: Path, journal: Journal) -> None:
    """Write atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(to_json(journal), file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read_journal(path: Path) -> Journal | None:
    """The last command; None if there was none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return from_json(json.loads(text))
    except (ValueError, TypeError, KeyError) as problem:
        raise JournalError(f"{path} cannot be read ({problem}): move it away to start over") from None


def to_json(journal: Journal) -> dict[str, Any]:
    return {
        "version": VERSION,
        "command": journal.command,
        "cluster": journal.cluster_id,
        "started_ms": journal.started_ms,
        "throttle": journal.throttle,
        "at_once": journal.at_once,
        "throttled": list(journal.throttled),
        "rollback": journal.is_rollback,
        "ended": journal.is_ended,
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "before": journal.before[name],
                "after": row,
                **({"first": True} if name in journal.first else {}),
            }
            for name, row in journal.after.items()
        ],
    }


def from_json(fields: Any) -> Journal:
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise ValueError("it is not a journal of this version")
    rows = list_in(fields, "partitions")
    names = [partition_in(row) for row in rows]

    def brokers(row: Any, key: str) -> list[int]:
        return [number(broker, f'"{key}"') for broker in list_in(row, key)]

    throttle = fields["throttle"]
    return Journal(
        str(fields["command"]),
        str(fields["cluster"]),
        number(fields["started_ms"], '"started_ms"'),
        {name: brokers(row, "before") for name, row in zip(names, rows, strict=True)},
        {name: brokers(row, "after") for name, row in zip(names, rows, strict=True)},
        None if throttle is None else number(throttle, '"throttle"'),
        number(fields["at_once"], '"at_once"'),
        tuple(name for name, row in zip(names, rows, strict=True) if row.get("first")),
        tuple(brokers(fields, "throttled")),
        bool(fields["rollback"]),
        bool(fields["ended"]),
    )
