"""`ottla pipeline graph`: topics, steps and sinks as a picture or as a graph description."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ottla.cli.pipelines.files import load, tell
from ottla.cli.terminal import UsageError, print_line
from ottla.pipelines.model.graph import Graph, build_graph, dot, mermaid, svg
from ottla.pipelines.model.problems import PipelineError

FORMS: dict[str, Callable[[Graph], str]] = {".svg": svg, ".dot": dot, ".mmd": mermaid}


def run_graph(options: argparse.Namespace) -> int:
    output = Path(options.output) if options.output else None
    if output is not None and output.suffix not in FORMS:
        raise UsageError(f"{output}: the name must end in one of {', '.join(FORMS)}")
    try:
        graph = build_graph(load(options).pipeline)
    except PipelineError as wrong:
        return tell(wrong)
    if output is None:
        for line in mermaid(graph).splitlines():
            print_line(line)
        return 0
    output.write_text(FORMS[output.suffix](graph), encoding="utf-8")
    print_line(f"{output}: {len(graph.nodes)} nodes, {len(graph.edges)} edges")
    return 0
