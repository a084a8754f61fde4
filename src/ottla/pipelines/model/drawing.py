"""A graph as SVG, drawn without anybody's help: columns from left to right, as far along as the longest way leads.

Fonts differ from machine to machine, so boxes are a little wider than the text in most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from ottla.pipelines.model.graph import Edge, Graph, Node

LETTER = 7.2  # the width of one, at the size below
LINE = 18
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='12'"
PADDING = 12
GAP_X = 70
GAP_Y = 24
MARGIN = 20
FILLS = {"topic": "#e4eef8", "stream": "#ffffff", "place": "#eef5e9"}
STROKES = {"topic": "#2f6fb0", "stream": "#5a6570", "place": "#4c9f70"}
LINES = ("#5a6570", "#c8453b")


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
        "<defs>" + "".join(_arrow(number, colour) for number, colour in enumerate(LINES)) + "</defs>",
        *(_edge(edge, boxes) for edge in graph.edges),
        *(_node(node, boxes[node.key]) for node in graph.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def layout(graph: Graph) -> dict[str, Box]:
    """Where each node stands; no two overlap."""
    columns: dict[int, list[Node]] = {}
    layer = layers(graph)
    for node in graph.nodes:
        columns.setdefault(layer[node.key], []).append(node)
    boxes: dict[str, Box] = {}
    x = float(MARGIN)
    for number in sorted(columns):
        y = float(MARGIN)
        width = max(_width(node) for node in columns[number])
        for node in columns[number]:
            height = LINE * len(node.lines) + PADDING
            boxes[node.key] = Box(x, y, width, height)
            y += height + GAP_Y
        x += width + GAP_X
    return boxes


def layers(graph: Graph) -> dict[str, int]:
    """The column of each node: one after the last that leads to it. Ways back (a topic that is read and written) are
    left out."""
    found: dict[str, int] = {}
    before: dict[str, list[str]] = {node.key: [] for node in graph.nodes}
    for edge in graph.edges:
        before[edge.end].append(edge.start)

    def layer(key: str, way: frozenset[str]) -> int:
        if key not in found:
            ways = [layer(each, way | {key}) for each in before[key] if each not in way and each != key]
            depth = 1 + max(ways, default=-1)
            if way & set(before[key]):
                return depth  # cut short by a way back: not the last word
            found[key] = depth
        return found[key]

    return {node.key: layer(node.key, frozenset()) for node in graph.nodes}


def _width(node: Node) -> float:
    return max(len(line) for line in node.lines) * LETTER + 2 * PADDING


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
        y = box.y + PADDING / 2 + LINE * number + 13
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
    return f"<path d='{way}' fill='none' stroke='{LINES[number]}'{style} marker-end='url(#arrow{number})'/>"


def _arrow(number: int, colour: str) -> str:
    return (
        f"<marker id='arrow{number}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='{colour}'/></marker>"
    )
