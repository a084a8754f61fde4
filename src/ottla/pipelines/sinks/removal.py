"""Removes the output of a pipeline together with the batches that its sinks have stored, never one without the other.

A ledger without rows would stop a new query; rows without a ledger would be written twice. So:
  tables     all rows and the ledger entries, in one transaction, if no other query writes there and the pipeline
             created the table; otherwise only the entries, and only if the table is empty
  topics     markers, if the topic is empty: records may have been read by others, so deleting them is up to the user
  folders    those of the pipeline's batches
  Delta      nothing: the table's log cannot be changed

Planning has no side effects.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from ottla.pipelines.sinks.batch import Sink
from ottla.pipelines.sinks.batch_ledger import LedgerSink
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.files import DeltaSink, FilesSink, list_batches
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic

IsOwn = Callable[[str], bool]  # whether the query belongs to the pipeline
FRESH_RUN_HINT = "or keep it, and write everything again with run --fresh"


class Removal(NamedTuple):
    """The data to remove from a sink: a line that describes it, or why it must stay."""

    place: str
    text: str
    is_rejected: bool = False
    remove: Callable[[], None] = lambda: None


def plan_removal(sink: Sink, is_own: IsOwn) -> Removal:
    """Raises SinkError if the sink cannot be read."""
    if not isinstance(sink, LedgerSink):
        return Removal(str(getattr(sink, "place", "console")), "stores no batches; written data stays")
    own = [query for query in sink.last_batches() if is_own(query)]
    if isinstance(sink, FilesSink):
        return _files_removal(sink, is_own)
    if not own:
        return Removal(sink.place, "has nothing of this pipeline")
    if isinstance(sink, DatabaseSink):
        return _table_removal(sink, own, has_others=len(own) < len(sink.last_batches()))
    if isinstance(sink, ExactlyOnceTopic):
        return _topic_removal(sink, own)
    assert isinstance(sink, DeltaSink)
    return Removal(sink.place, f"its log cannot be changed: remove the folder, {FRESH_RUN_HINT}", is_rejected=True)


def _table_removal(sink: DatabaseSink, own: Collection[str], has_others: bool) -> Removal:
    rows = sink.with_retries(lambda session: session.count(sink.table))
    if rows and has_others:
        return Removal(
            sink.place, f"other queries write to it as well: empty it manually, {FRESH_RUN_HINT}", is_rejected=True
        )
    if rows and not sink.table.create:
        return Removal(
            sink.place, f"was not created by the pipeline: empty it manually, {FRESH_RUN_HINT}", is_rejected=True
        )

    def remove(session: Session) -> None:
        if not has_others and sink.table.create:
            session.clear(sink.table)
        for query in own:
            session.delete_batch(query, sink.table.name)
        session.commit()

    text = f"delete {rows} rows and their ledger entries"
    return Removal(sink.place, text, remove=lambda: sink.with_retries(remove))


def _topic_removal(sink: ExactlyOnceTopic, own: Collection[str]) -> Removal:
    count = sink.record_count()
    if count:
        found = f"has up to {count} records (transaction markers included)"
        text = f"{found}: delete them (ottla records delete, ottla topics delete), {FRESH_RUN_HINT}"
        return Removal(sink.place, text, is_rejected=True)
    return Removal(sink.place, "is empty: delete its batch markers", remove=partial(sink.delete_markers, own))


def _files_removal(sink: FilesSink, is_own: IsOwn) -> Removal:
    folder = local_path(sink.path)
    if folder is None:
        return Removal(sink.place, "is remote: remove its contents manually")
    found = [path for path, query in list_batches(folder) if is_own(query)]
    if not found:
        return Removal(sink.place, "has nothing of this pipeline")

    def remove() -> None:
        for path in found:
            shutil.rmtree(path)

    return Removal(sink.place, f"delete {len(found)} folders, one per batch", remove=remove)
