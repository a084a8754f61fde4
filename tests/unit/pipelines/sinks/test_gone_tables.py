"""A dropped table: its ledger describes deleted rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.database import SqliteSink
from ottla.pipelines.sinks.external_offsets import kept_offsets
from ottla.pipelines.sinks.sql_tables import Table, TableColumn
from ottla.pipelines.sinks.sqlite import SqliteSession


def test_a_dropped_table_has_no_ledger(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.db")
    sink = SqliteSink(Table("rows"), keeps_offsets=True, path=path)
    with SqliteSession(path) as session:
        session.prepare(sink.table, [TableColumn("n", "integer")])
        session.store_batch("views.main.0", "rows", LastBatch(3, "x"))
        session.store_offsets("views.main.0", {"clicks": {0: 30}})
        session.commit()
    assert sink.last_batches() == {"views.main.0": LastBatch(3, "x")}
    assert kept_offsets(sink, "views.main.0") == {"clicks": {0: 30}}
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE rows")
    assert sink.last_batches() == {}
    assert kept_offsets(sink, "views.main.0") == {}
