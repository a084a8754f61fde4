"""A table that somebody has dropped: the ledger is about rows that are gone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ottla.pipelines.sinks.database import SqliteSink
from ottla.pipelines.sinks.external_offsets import kept_offsets
from ottla.pipelines.sinks.ledger import Recorded
from ottla.pipelines.sinks.sqlite import SqliteSession
from ottla.pipelines.sinks.tables import Table, TableColumn


def test_a_table_that_is_gone_remembers_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.db")
    sink = SqliteSink(Table("rows"), keeps_offsets=True, path=path)
    with SqliteSession(path) as session:
        session.prepare(sink.table, [TableColumn("n", "integer")])
        session.record("views.main.0", "rows", Recorded(3, "x"))
        session.keep_offsets("views.main.0", {"clicks": {0: 30}})
        session.commit()
    assert sink.remembered() == {"views.main.0": Recorded(3, "x")}
    assert kept_offsets(sink, "views.main.0") == {"clicks": {0: 30}}
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE rows")
    assert sink.remembered() == {}
    assert kept_offsets(sink, "views.main.0") == {}
