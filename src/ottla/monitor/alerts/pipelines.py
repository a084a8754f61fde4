"""What state folders tell about pipelines: failed, killed, late. Files may be damaged, of another version, or gone.

The format is that of `ottla pipeline run`: `<state folder>/<pipeline>/_run/status.json`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ottla.monitor.alerts.observing import Findings
from ottla.monitor.alerts.rules import Rule

STATUS: Final = "_run/status.json"
STATUS_BYTES_MAX: Final = 4 << 20
PIPELINES_MAX: Final = 1_000
LIVE: Final = ("starting", "running", "restarting", "stopping")


def observe_pipelines(rule: Rule, folders: Iterable[Path]) -> Findings:
    """Blocking: reads files. `above` of the rule is the lag in records that is too much, 0: none is."""
    found: Findings = {}
    for folder in folders:
        try:
            paths = sorted(folder.glob(f"*/{STATUS}"))[:PIPELINES_MAX]
        except OSError:
            continue
        for path in paths:
            name = path.parents[1].name
            status = _read(path) if fnmatchcase(name, rule.pipeline) else None
            trouble = _trouble(rule, status) if status is not None else ""
            if trouble:
                found[f"pipeline {name}"] = trouble
    return found


def _trouble(rule: Rule, status: dict[str, Any]) -> str:
    state = status.get("state")
    if state == "failed":
        return f"failed: {status.get('reason') or 'no reason was told'}"
    if state in LIVE and status.get("host") == socket.gethostname() and not _is_alive(status):
        return "the process ended without a word"
    queries = [query for query in _list(status.get("queries")) if isinstance(query, dict)]
    for query in queries:
        if query.get("error"):
            return f"{query.get('query')}: {query['error']}"
    lags = [query["lag"] for query in queries if isinstance(query.get("lag"), int)]
    if state in LIVE and rule.above > 0 and max(lags, default=0) > rule.above:
        return f"{max(lags)} records behind, more than {rule.above:g}"
    return ""


def _is_alive(status: dict[str, Any]) -> bool:
    """Is it still the same process? Its id alone may be somebody else's by now."""
    pid, start = status.get("pid"), status.get("process_start")
    if not isinstance(pid, int) or not start:
        return True  # nobody can tell
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return not Path("/proc/self/stat").exists()
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0] not in ("Z", "X") and int(fields[19]) == start


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(STATUS_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
