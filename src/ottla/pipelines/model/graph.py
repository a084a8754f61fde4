"""A pipeline as a graph: topics, streams with their steps, and the places they go to.

A topic that one stream writes and another reads is one node, so that the way of the records is seen. Drawn as SVG by
drawing.py, or written as text that others draw: Mermaid (which GitHub shows in a page) and DOT.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ottla.pipelines.model.fields import UNITS_MS, Duration
from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource, parents
from ottla.pipelines.model.sinks import SINKS, DatabaseSink, Sink, TopicSink, shown_place

LABEL_LENGTH_MAX = 44
UNITS = ("week", "day", "hour", "minute", "second", "millisecond")

Kind = Literal["topic", "stream", "place"]


class Node(NamedTuple):
    """`lines` begin with the title."""

    key: str
    kind: Kind
    lines: tuple[str, ...]


class Edge(NamedTuple):
    start: str
    end: str
    is_dashed: bool = False  # for records that die


class Graph(NamedTuple):
    nodes: list[Node]
    edges: list[Edge]


def graph_of(pipeline: Pipeline) -> Graph:
    nodes: dict[str, Node] = {}
    edges: dict[Edge, None] = {}

    def place(node: Node) -> str:
        return nodes.setdefault(node.key, node).key

    for stream in pipeline.streams.values():
        if isinstance(stream.origin, TopicSource):
            for topic in _topics(stream.origin):
                edges[Edge(place(topic), _key(stream))] = None
        place(Node(_key(stream), "stream", (stream.name, *(step_label(*step) for step in stream.steps))))
        tables = [getattr(step.spec, "newest_of", None) for step in stream.steps]  # streams that are read as tables
        for parent in [*parents(stream), *(name for name in tables if name in pipeline.streams)]:
            edges[Edge(_key(pipeline.streams[parent]), _key(stream))] = None
        for sink in stream.sinks:
            edges[Edge(_key(stream), place(_place(sink)))] = None
    for name in filter(None, (pipeline.dead_letter_topic, pipeline.head.late_rows)):
        letters = place(_topic(name))
        for stream in pipeline.streams.values():
            if stream.steps:
                edges[Edge(_key(stream), letters, is_dashed=True)] = None
    return Graph(list(nodes.values()), list(edges))


def mermaid(graph: Graph) -> str:
    shapes = {"topic": ("([", "])"), "stream": ("[", "]"), "place": ("[(", ")]")}
    names = {node.key: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        before, after = shapes[node.kind]
        text = "<br/>".join(_mermaid_text(line) for line in node.lines)
        lines.append(f'  {names[node.key]}{before}"{text}"{after}')
    arrows = {False: "-->", True: "-.->"}
    edges = [f"  {names[edge.start]} {arrows[edge.is_dashed]} {names[edge.end]}" for edge in graph.edges]
    return "\n".join([*lines, *edges]) + "\n"


def dot(graph: Graph) -> str:
    shapes = {"topic": "box, style=rounded", "stream": "box", "place": "cylinder"}
    names = {node.key: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["digraph pipeline {", "  rankdir=LR; node [fontname=sans, fontsize=11];"]
    for node in graph.nodes:
        text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in node.lines)
        lines.append(f'  {names[node.key]} [shape={shapes[node.kind]}, label="{text}"];')
    styles = {False: "", True: " [style=dashed]"}
    edges = [f"  {names[edge.start]} -> {names[edge.end]}{styles[edge.is_dashed]};" for edge in graph.edges]
    return "\n".join([*lines, *edges, "}"]) + "\n"


def step_label(name: str, spec: object) -> str:
    """The step and the first thing that was said about it."""
    said = next(_said(spec), "")
    text = f"{name} {said}".strip()
    return text if len(text) <= LABEL_LENGTH_MAX else f"{text[: LABEL_LENGTH_MAX - 1]}…"


def _said(spec: object) -> Iterator[str]:
    if not dataclasses.is_dataclass(spec):
        return
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value != default and field.name not in ("salt", "postgres", "sqlalchemy", "headers", "http"):  # secrets
            yield _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Duration):
        return duration_words(value)
    if isinstance(value, dict):
        return ", ".join(map(str, value))
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return " ".join(str(value).split()) if not callable(value) else getattr(value, "__name__", "function")


def duration_words(value: Duration) -> str:
    unit = next((unit for unit in UNITS if value and int(value) % UNITS_MS[unit] == 0), "millisecond")
    count = int(value) // UNITS_MS[unit]
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _key(stream: Stream) -> str:
    return f"stream {stream.name}"


def _topics(source: TopicSource) -> list[Node]:
    return [_topic(name) for name in ([source.pattern] if source.pattern else source.topic)]


def _topic(name: str) -> Node:
    return Node(f"topic {name}", "topic", (name,))


def _place(sink: Sink) -> Node:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    if isinstance(sink, TopicSink):
        return _topic(sink.topic)
    if isinstance(sink, DatabaseSink):
        file = f" in {shown_place(sink)}" if shown_place(sink) else ""
        return Node(f"{kind} {getattr(sink, kind)} {sink.table}", "place", (f"{sink.table}", f"{kind}{file}"))
    if kind == "console":
        return Node(kind, "place", (kind,))
    return Node(f"{kind} {getattr(sink, kind)}", "place", (shown_place(sink), kind))


def _mermaid_text(text: str) -> str:
    replaced = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}
    return "".join(replaced.get(letter, letter) for letter in text)
