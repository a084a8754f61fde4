"""Where a pipeline writes, by the names under which a test expects something there.

The name is the topic, the table, the path, or `console`. Where two places share it, each is called by its kind, too
(`topic:views`, `sqlite:views`), and where that is not enough, by its database (`sqlite:a.db/views`). Several streams
may write to one place.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.sinks import CONNECTIONS, SINKS, DatabaseSink, Sink, TopicSink, shown_place


class Place(NamedTuple):
    kind: str
    name: str
    whole: str  # with the database


def place_names(pipeline: Pipeline) -> dict[Place, str]:
    places = list(dict.fromkeys(place_of(sink) for stream in pipeline.queries() for sink in stream.sinks))
    forms = {place: (place.name, f"{place.kind}:{place.name}", f"{place.kind}:{place.whole}") for place in places}
    return {
        place: next(
            (form for level, form in enumerate(own) if [each[level] for each in forms.values()].count(form) == 1),
            own[-1],
        )
        for place, own in forms.items()
    }


def topic_names(pipeline: Pipeline) -> set[str]:
    """The places that hold records and not rows."""
    return {name for place, name in place_names(pipeline).items() if SINKS[place.kind] is TopicSink}


def chooses_topics(pipeline: Pipeline) -> bool:
    """A column names the topic of each row: any name may be one."""
    return any(
        isinstance(sink, TopicSink) and sink.topic_column is not None
        for stream in pipeline.queries()
        for sink in stream.sinks
    )


def place_of(sink: Sink) -> Place:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    if isinstance(sink, DatabaseSink):
        database = str(getattr(sink, kind))
        if kind in CONNECTIONS:
            database = f"{crc32(database.encode()):08x}"  # it may have a password in it
        return Place(kind, sink.table, f"{database}/{sink.table}")
    name = "console" if kind == "console" else shown_place(sink)
    return Place(kind, name, name)
