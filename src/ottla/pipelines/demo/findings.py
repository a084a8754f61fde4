"""Results of the demo's pipeline, read from its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

ROWS = 6
WAIT_SECONDS = 0.2

HOT_PAGES = """
SELECT page, views FROM hot_pages WHERE window_end = (SELECT max(window_end) FROM hot_pages) ORDER BY rank LIMIT :rows
"""
BOUGHT_TOGETHER = """
SELECT json_extract("when", '$[0]') || ' + ' || "then" AS pair, together, printf('%d %%', round(100 * confidence))
FROM bought_together
WHERE window_end = (SELECT max(window_end) FROM bought_together) AND json_extract("when", '$[0]') < "then"
ORDER BY together DESC, pair LIMIT :rows
"""
SLOW_REQUESTS = """
SELECT substr(at, 12, 8), service, printf('%d ms', ms), printf('%d x', ms / expected) FROM slow_requests
ORDER BY at DESC LIMIT :rows
"""


class Panel(NamedTuple):
    """A small table; `numbers` are the indexes of numeric columns."""

    title: str
    columns: int
    numbers: tuple[int, ...]
    query: str
    rows: tuple[tuple[str, ...], ...] = ()


class Findings(NamedTuple):
    panels: tuple[Panel, ...] = ()


PANELS = (
    Panel("hot pages", 2, (1,), HOT_PAGES),
    Panel("bought together", 3, (1, 2), BOUGHT_TOGETHER),
    Panel("slow requests", 4, (2, 3), SLOW_REQUESTS),
)


def read_findings(file: Path) -> Findings:
    """The current results; a missing table has no rows."""
    if not file.exists():
        return Findings(PANELS)
    with closing(sqlite3.connect(f"file:{file}?mode=ro", timeout=WAIT_SECONDS, uri=True)) as database:
        return Findings(tuple(panel._replace(rows=_rows(database, panel.query)) for panel in PANELS))


def _rows(database: sqlite3.Connection, query: str) -> tuple[tuple[str, ...], ...]:
    try:
        found = database.execute(query, {"rows": ROWS}).fetchall()
    except sqlite3.OperationalError:  # the table does not exist yet, or the pipeline is writing
        return ()
    return tuple(tuple(str(cell) for cell in row) for row in found)
