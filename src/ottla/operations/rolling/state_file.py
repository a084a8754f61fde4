"""The state file of a rolling restart: it survives a crash, and its lock prevents a second roll at the same time."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

from ottla.operations.errors import OperationError
from ottla.operations.rolling.roll import Phase, RollState

VERSION: Final = 1
FILE_BYTES_MAX: Final = 1024 * 1024


class StateFileError(OperationError):
    """The file cannot be used; str() has cause and remedy."""


class SavedRoll(NamedTuple):
    """A roll that has stopped."""

    command: str
    wanted: tuple[int, ...]  # as given; empty: all
    saved_ms: int
    state: RollState


def default_path(cluster_id: str) -> Path:
    """One file per cluster, in the XDG state directory."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    safe = "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in cluster_id)
    return base / "ottla" / f"roll-{safe or 'cluster'}.json"


class StateFile:
    """A context manager that holds the file lock during the roll."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path.with_name(f"{self.path.name}.lock"), "ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise StateFileError(f"another roll of this cluster is under way: {self.path} is locked") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def load(self) -> SavedRoll | None:
        try:
            with open(self.path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        try:
            return from_json(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StateFileError(f"{self.path} is not the state of a roll: remove it to start over") from None

    def save(self, saved: SavedRoll) -> None:
        """Write atomically, readable only by the owner, because a command may contain a password."""
        new = self.path.with_name(f"{self.path.name}.new")
        with open(new, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump(to_json(saved), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"<StateFile {self.path}>"


def to_json(saved: SavedRoll) -> dict[str, Any]:
    state = saved.state
    return {
        "version": VERSION,
        "command": saved.command,
        "wanted": list(saved.wanted),
        "saved_ms": saved.saved_ms,
        "brokers": state.brokers,
        "done": state.done,
        "at": state.current,
        "phase": state.phase.value,
        "epochs": {str(broker): epoch for broker, epoch in state.epochs.items()},
    }


def from_json(fields: Any) -> SavedRoll:
    """Raises ValueError, KeyError or TypeError for an invalid state."""
    if fields["version"] != VERSION:
        raise ValueError("of another version")
    state = RollState(
        brokers=[int(broker) for broker in fields["brokers"]],
        done=[int(broker) for broker in fields["done"]],
        current=None if fields["at"] is None else int(fields["at"]),
        phase=Phase(fields["phase"]),
        epochs={int(broker): int(epoch) for broker, epoch in fields["epochs"].items()},
    )
    return SavedRoll(str(fields["command"]), tuple(int(b) for b in fields["wanted"]), int(fields["saved_ms"]), state)
