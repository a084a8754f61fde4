"""A pipeline as a graph: nodes and edges, output formats, and a layout without overlaps."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from ottla.cli.main import main
from ottla.pipelines.model.graph import Graph, build_graph, dot, layout, mermaid, node_columns, svg
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.steps.step_table import STEPS

FILE = """
name: views
streams:
  events:
    from: {topic: [clicks, taps]}
    steps:
      - parse: {format: json, schema: {page: string, at: timestamp}}
      - filter: {where: "page <> '<x>' AND \\"quoted\\" > 1"}
  counts:
    from: events
    steps:
      - watermark: {time: at, delay: 90 seconds}
      - window: {size: 1 minute, by: [page]}
    to:
      - {topic: counts}
      - {postgres: "postgresql://me:secret@db/x", table: counts}
  again:
    from: {topic: counts}
    steps: [{mask: {columns: {page: hash}, salt: very-secret-salt}}]
    to: [console, {parquet: out}, {topic: clicks}]
"""


def graph(text: str = FILE) -> Graph:
    return build_graph(read_pipeline(yaml.safe_load(text), STEPS))


def test_topics_streams_and_sinks_are_nodes_and_a_topic_is_one_node() -> None:
    found = graph()

    assert [node.lines for node in found.nodes] == [
        ("clicks",),
        ("taps",),
        ("events", "parse json", "filter page <> '<x>' AND \"quoted\" > 1"),
        ("counts", "watermark at", "window 1 minute"),
        ("counts",),
        ("counts", "postgres"),
        ("again", "mask page"),
        ("console",),
        ("out", "parquet"),
        ("views-dead-letters",),
    ]
    titles = {node.key: f"{node.kind} {node.lines[0]}" for node in found.nodes}
    edges = [f"{titles[edge.start]} -> {titles[edge.end]}" for edge in found.edges if not edge.is_dashed]
    assert edges == [
        "topic clicks -> stream events",
        "topic taps -> stream events",
        "stream events -> stream counts",
        "stream counts -> topic counts",
        "stream counts -> place counts",
        "topic counts -> stream again",
        "stream again -> place console",
        "stream again -> place out",
        "stream again -> topic clicks",
    ]
    assert sum(edge.is_dashed for edge in found.edges) == 3


@pytest.mark.parametrize("form", [svg, dot, mermaid])
def test_no_format_contains_a_secret(form: object) -> None:
    assert "secret" not in form(graph())  # type: ignore[operator]


def test_the_picture_is_xml_with_every_line_in_it_and_nothing_overlaps() -> None:
    found = graph()
    texts = [each.text for each in ET.fromstring(svg(found)).iter() if each.tag.endswith("text")]

    assert texts == [line for node in found.nodes for line in node.lines]
    for one, other in combinations(layout(found).values(), 2):
        is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        is_below = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert is_beside or is_below


def test_columns_follow_the_way_of_the_records_also_in_a_circle() -> None:
    found = graph(FILE.replace(", {topic: clicks}", ""))
    depth = node_columns(found)

    assert all(depth[edge.start] < depth[edge.end] for edge in found.edges)
    assert set(node_columns(graph())) == {node.key for node in graph().nodes}  # a back edge does not end the search


def test_a_stream_that_is_joined_as_a_table_leads_to_the_one_that_joins_it() -> None:
    found = graph("""
        name: p
        streams:
          customers: {from: {topic: customers}}
          orders: {from: {topic: orders}, steps: [{join: {newest_of: customers, "on": [id]}}], to: console}
    """)

    assert ("stream customers", "stream orders", False) in found.edges


def test_text_for_others_is_escaped() -> None:
    assert 'n0(["clicks"])' in mermaid(graph())
    assert "filter page #lt;#gt; '#lt;x#gt;' AND #quot;quoted#quot; #gt; 1" in mermaid(graph())
    assert '\\"quoted\\"' in dot(graph())


def test_the_command_chooses_the_format_by_file_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE)

    assert main(["pipeline", "graph", str(file), "-o", str(tmp_path / "p.svg")]) == 0
    assert (tmp_path / "p.svg").read_text() == svg(graph())
    assert main(["pipeline", "graph", str(file)]) == 0
    assert capsys.readouterr().out.endswith(mermaid(graph()))
    assert main(["pipeline", "graph", str(file), "-o", "p.bmp"]) == 2
    file.write_text("name: p\n")
    assert main(["pipeline", "graph", str(file)]) == 2
