"""What a pipeline has written goes, and with it what the sinks remember: never one without the other.

A memory without rows would make a new query stop; rows without a memory would be there twice. So:
  tables     all rows and the ledger's entries, in one transaction, if no other query writes there and the table was
             made by the pipeline; else only the entries, and only if the table is empty
  topics     markers, if the topic is empty: records may have been read by others, and are theirs to delete
  folders    those of the pipeline's batches
  Delta      nothing: the table's log cannot forget

Looking at what would go changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from ottla.pipelines.sinks.batch import Sink
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.files import DeltaSink, FilesSink, batches_of
from ottla.pipelines.sinks.ledger import Remembering
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic

IsOwn = Callable[[str], bool]  # whether the pipeline has this query
ONCE_MORE = "or leave it, and write all of it once more with run --fresh"


class Removal(NamedTuple):
    """What is to go from a sink: a line that says so, or why it must not."""

    place: str
    text: str
    is_refused: bool = False
    remove: Callable[[], None] = lambda: None


def plan_removal(sink: Sink, is_own: IsOwn) -> Removal:
    """Raises SinkError if the sink cannot be asked."""
    if not isinstance(sink, Remembering):
        return Removal(str(getattr(sink, "place", "console")), "remembers nothing; what was written stays")
    own = [query for query in sink.remembered() if is_own(query)]
    if isinstance(sink, FilesSink):
        return _of_files(sink, is_own)
    if not own:
        return Removal(sink.place, "has nothing of this pipeline")
    if isinstance(sink, DatabaseSink):
        return _of_table(sink, own, has_others=len(own) < len(sink.remembered()))
    if isinstance(sink, ExactlyOnceTopic):
        return _of_topic(sink, own)
    assert isinstance(sink, DeltaSink)
    return Removal(sink.place, f"its log cannot forget: remove the folder, {ONCE_MORE}", is_refused=True)


def _of_table(sink: DatabaseSink, own: Collection[str], has_others: bool) -> Removal:
    rows = sink.patiently(lambda session: session.count(sink.table))
    if rows and has_others:
        return Removal(sink.place, f"other queries write there, too: empty it yourself, {ONCE_MORE}", is_refused=True)
    if rows and not sink.table.create:
        return Removal(sink.place, f"is not of our making: empty it yourself, {ONCE_MORE}", is_refused=True)

    def remove(session: Session) -> None:
        if not has_others and sink.table.create:
            session.clear(sink.table)
        for query in own:
            session.forget(query, sink.table.name)
        session.commit()

    text = f"delete {rows} rows, and what is remembered of their batches"
    return Removal(sink.place, text, remove=lambda: sink.patiently(remove))


def _of_topic(sink: ExactlyOnceTopic, own: Collection[str]) -> Removal:
    count = sink.record_count()
    if count:
        found = f"has up to {count} records (markers of transactions are counted, too)"
        text = f"{found}: delete them (ottla records delete, ottla topics delete), {ONCE_MORE}"
        return Removal(sink.place, text, is_refused=True)
    return Removal(sink.place, "is empty: forget what was written there", remove=partial(sink.forget, own))


def _of_files(sink: FilesSink, is_own: IsOwn) -> Removal:
    folder = local_path(sink.path)
    if folder is None:
        return Removal(sink.place, "is not looked into: remove what is there yourself")
    found = [path for path, query in batches_of(folder) if is_own(query)]
    if not found:
        return Removal(sink.place, "has nothing of this pipeline")

    def remove() -> None:
        for path in found:
            shutil.rmtree(path)

    return Removal(sink.place, f"delete {len(found)} folders, one a batch", remove=remove)
