"""A pipeline as a graph of topics, streams with their steps, and sinks.

A topic that one stream writes and another reads is one node, so the path of the records is visible. Formats: SVG,
Mermaid (which GitHub renders) and DOT.

The SVG layout places nodes in columns from left to right by their longest path. Fonts differ between machines, so boxes
are slightly wider than the text in most fonts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Literal, NamedTuple

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource, parents
from ottla.pipelines.model.sink_specs import SINKS, DatabaseSink, Sink, TopicSink, sink_display_name
from ottla.pipelines.model.specs import UNITS_MS, Duration

LABEL_LENGTH_MAX = 44
UNITS = ("week", "day", "hour", "minute", "second", "millisecond")

NodeKind = Literal["topic", "stream", "place"]

CHARACTER_WIDTH = 7.2  # width of a character at the font size below
LINE_HEIGHT = 18
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='12'"
PADDING = 12
GAP_X = 70
GAP_Y = 24
MARGIN = 20
FILLS = {"topic": "#e4eef8", "stream": "#ffffff", "place": "#eef5e9"}
STROKES = {"topic": "#2f6fb0", "stream": "#5a6570", "place": "#4c9f70"}
EDGE_COLOURS = ("#5a6570", "#c8453b")


class Node(NamedTuple):
    """`lines[0]` is the title."""

    key: str
    kind: NodeKind
    lines: tuple[str, ...]


class Edge(NamedTuple):
    start: str
    end: str
    is_dashed: bool = False  # for dead letters


class Graph(NamedTuple):
    nodes: list[Node]
    edges: list[Edge]


def build_graph(pipeline: Pipeline) -> Graph:
    nodes: dict[str, Node] = {}
    edges: dict[Edge, None] = {}

    def place(node: Node) -> str:
        return nodes.setdefault(node.key, node).key

    for stream in pipeline.streams.values():
        if isinstance(stream.origin, TopicSource):
            for topic in _topic_nodes(stream.origin):
                edges[Edge(place(topic), _stream_key(stream))] = None
        place(Node(_stream_key(stream), "stream", (stream.name, *(step_label(*step) for step in stream.steps))))
        tables = [getattr(step.spec, "newest_of", None) for step in stream.steps]  # streams that are read as tables
        for parent in [*parents(stream), *(name for name in tables if name in pipeline.streams)]:
            edges[Edge(_stream_key(pipeline.streams[parent]), _stream_key(stream))] = None
        for sink in stream.sinks:
            edges[Edge(_stream_key(stream), place(_sink_node(sink)))] = None
    for name in filter(None, (pipeline.dead_letter_topic, pipeline.fields.late_rows)):
        letters = place(_topic_node(name))
        for stream in pipeline.streams.values():
            if stream.steps:
                edges[Edge(_stream_key(stream), letters, is_dashed=True)] = None
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
    """The name of the step and its first field that differs from the default."""
    said = next(_non_default_values(spec), "")
    text = f"{name} {said}".strip()
    return text if len(text) <= LABEL_LENGTH_MAX else f"{text[: LABEL_LENGTH_MAX - 1]}…"


def _non_default_values(spec: object) -> Iterator[str]:
    if not dataclasses.is_dataclass(spec):
        return
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        # may contain secrets
        if value != default and field.name not in ("salt", "postgres", "sqlalchemy", "headers", "http"):
            yield _value_text(value)


def _value_text(value: Any) -> str:
    if isinstance(value, Duration):
        return duration_text(value)
    if isinstance(value, dict):
        return ", ".join(map(str, value))
    if isinstance(value, list | tuple):
        return ", ".join(map(_value_text, value))
    return " ".join(str(value).split()) if not callable(value) else getattr(value, "__name__", "function")


def duration_text(value: Duration) -> str:
    unit = next((unit for unit in UNITS if value and int(value) % UNITS_MS[unit] == 0), "millisecond")
    count = int(value) // UNITS_MS[unit]
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _stream_key(stream: Stream) -> str:
    return f"stream {stream.name}"


def _topic_nodes(source: TopicSource) -> list[Node]:
    return [_topic_node(name) for name in ([source.pattern] if source.pattern else source.topic)]


def _topic_node(name: str) -> Node:
    return Node(f"topic {name}", "topic", (name,))


def _sink_node(sink: Sink) -> Node:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    if isinstance(sink, TopicSink):
        return _topic_node(sink.topic)
    if isinstance(sink, DatabaseSink):
        file = f" in {sink_display_name(sink)}" if sink_display_name(sink) else ""
        return Node(f"{kind} {getattr(sink, kind)} {sink.table}", "place", (f"{sink.table}", f"{kind}{file}"))
    if kind == "console":
        return Node(kind, "place", (kind,))
    return Node(f"{kind} {getattr(sink, kind)}", "place", (sink_display_name(sink), kind))


def _mermaid_text(text: str) -> str:
    replaced = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}
    return "".join(replaced.get(letter, letter) for letter in text)


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def svg(graph: Graph) -> str:
    boxes = layout(graph)
    width = max((box.x + box.width for box in boxes.values()), default=0) + MARGIN
    height = max((box.y + box.height for box in boxes.values()), default=0) + MARGIN
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
            f"viewBox='0 0 {width:.0f} {height:.0f}' {FONT}>"
        ),
        f"<rect width='{width:.0f}' height='{height:.0f}' fill='#ffffff'/>",
        "<defs>" + "".join(_arrow(number, colour) for number, colour in enumerate(EDGE_COLOURS)) + "</defs>",
        *(_edge(edge, boxes) for edge in graph.edges),
        *(_node(node, boxes[node.key]) for node in graph.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def layout(graph: Graph) -> dict[str, Box]:
    """Return the position of each node; no two nodes overlap."""
    columns: dict[int, list[Node]] = {}
    layer = node_columns(graph)
    for node in graph.nodes:
        columns.setdefault(layer[node.key], []).append(node)
    boxes: dict[str, Box] = {}
    x = float(MARGIN)
    for number in sorted(columns):
        y = float(MARGIN)
        width = max(_width(node) for node in columns[number])
        for node in columns[number]:
            height = LINE_HEIGHT * len(node.lines) + PADDING
            boxes[node.key] = Box(x, y, width, height)
            y += height + GAP_Y
        x += width + GAP_X
    return boxes


def node_columns(graph: Graph) -> dict[str, int]:
    """Return the column of each node: one after its last predecessor. Back edges (a topic that is read and written) are
    ignored."""
    found: dict[str, int] = {}
    before: dict[str, list[str]] = {node.key: [] for node in graph.nodes}
    for edge in graph.edges:
        before[edge.end].append(edge.start)

    def layer(key: str, way: frozenset[str]) -> int:
        if key not in found:
            ways = [layer(each, way | {key}) for each in before[key] if each not in way and each != key]
            depth = 1 + max(ways, default=-1)
            if way & set(before[key]):
                return depth  # a back edge cut this path short: the depth is not final
            found[key] = depth
        return found[key]

    return {node.key: layer(node.key, frozenset()) for node in graph.nodes}


def _width(node: Node) -> float:
    return max(len(line) for line in node.lines) * CHARACTER_WIDTH + 2 * PADDING


def _node(node: Node, box: Box) -> str:
    radius = 14 if node.kind == "topic" else 3
    parts = [
        (
            f"<rect x='{box.x:.1f}' y='{box.y:.1f}' width='{box.width:.1f}' height='{box.height:.1f}' rx='{radius}' "
            f"fill='{FILLS[node.kind]}' stroke='{STROKES[node.kind]}'/>"
        )
    ]
    for number, line in enumerate(node.lines):
        weight = " font-weight='bold'" if number == 0 else ""
        y = box.y + PADDING / 2 + LINE_HEIGHT * number + 13
        parts.append(f"<text x='{box.x + PADDING:.1f}' y='{y:.1f}'{weight} fill='#222222'>{escape(line)}</text>")
    return "".join(parts)


def _edge(edge: Edge, boxes: Mapping[str, Box]) -> str:
    start, end = boxes[edge.start], boxes[edge.end]
    x1, y1 = start.x + start.width, start.y + start.height / 2
    x2, y2 = end.x - 2, end.y + end.height / 2
    bend = max((x2 - x1) / 2, GAP_X / 2)
    style = " stroke-dasharray='5 4'" if edge.is_dashed else ""
    number = int(edge.is_dashed)
    way = f"M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return f"<path d='{way}' fill='none' stroke='{EDGE_COLOURS[number]}'{style} marker-end='url(#arrow{number})'/>"


def _arrow(number: int, colour: str) -> str:
    return (
        f"<marker id='arrow{number}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='{colour}'/></marker>"
    )
