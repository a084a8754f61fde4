"""The options of `format("ottla")` as a sink, checked: those of Spark's kafka sink, and how rows are delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.pipelines.sinks.topic import ExactlyOnceTopic
from ottla.pipelines.source.bounds import OptionError
from ottla.pipelines.source.options import BOOTSTRAP, client_properties, one_of, refuse_unknown

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# queryName and path are Spark's own; the headers of rows are sent where there are any, whatever includeHeaders says.
KNOWN = ("topic", "delivery", "checkpointLocation", "includeHeaders", "queryName", "path")
REFUSED = {
    "key.serializer": "keys are sent as they are: make text or binary of them with DataFrame functions",
    "value.serializer": "values are sent as they are: make text or binary of them with DataFrame functions",
    "interceptor.classes": "interceptors could change the records",
    "transactional.id": "each file of a batch has its own, so that a repetition is recognised",
}


@dataclass(frozen=True)
class WriteOptions:
    """All that the writers need to know; the properties have no kafka. in front."""

    properties: tuple[tuple[str, str], ...]
    topic: str
    delivery: str
    checkpoint: str

    def client(self) -> dict[str, str]:
        return dict(self.properties)

    def sink(self) -> ExactlyOnceTopic:
        return ExactlyOnceTopic(self.topic, self.client()[BOOTSTRAP], self.client())


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises OptionError, with a sentence."""
    texts = {name.lower(): str(value).strip() for name, value in given.items()}
    refuse_unknown(texts, KNOWN, "sink")
    if texts.get("path"):
        raise OptionError("save() and start() take no path here: name the topic with the option topic")
    topic = texts.get("topic", "")
    if not topic:
        raise OptionError("the option topic is missing: where should the rows go?")
    properties = client_properties(texts, REFUSED)
    delivery = one_of(texts, "delivery", (EXACTLY_ONCE, AT_LEAST_ONCE))
    return WriteOptions(tuple(sorted(properties.items())), topic, delivery, texts.get("checkpointlocation", ""))
