"""Writes the results: a table for the terminal, and docs/performance.md with plots."""

import os
from collections.abc import Iterable
from pathlib import Path

from bench.figures import Figures
from bench.goals import PHYSICAL, TIMES, section_titles
from bench.options import ONCE, SECTIONS
from bench.plots import write_plots
from bench.results import Results
from bench.table import DASH, Line, format_ratio, format_value, lines

HEADINGS = ("figure", "Apache Kafka", "ottla", "ratio", "goal", "met", "CPU Kafka", "CPU ottla")
MACHINE_ROWS = {
    "socket_to_file": "socket → file, one stream, 1 MiB writes",
    "sendfile_1": "file → socket with sendfile, one stream",
    "sendfile_4": "file → socket with sendfile, four streams",
    "sendfile_answers_1m": "sendfile in answers of 1 MiB, one request at a time",
    "sendfile_answers_50m": "sendfile in answers of 50 MiB, one request at a time",
}
FIRST_KEPT = "Three brokers"
# Beyond this noise a figure depends more on other processes than on the broker.
NOISE_SHARE_MAX = 0.1
TWO_CLIENT_SECTIONS = ("end_to_end", "cold")  # where the second client would count among the others

METHOD = """\
* One system runs at a time, on an empty data folder, over loopback; the order alternates. A figure is the median of
  the rounds, a ratio that of the two medians (ottla / Apache Kafka). Sections that take minutes ({once}) are
  measured in the first round only.
* Apache Kafka is one KRaft node with the heap and garbage collector options of its start scripts. Every section
  warms the broker up first. Both systems have default settings, but deleted files go away after a second, and new
  groups do not wait for more members (`group.initial.rebalance.delay.ms=0`).
* The client is a separate process, the same for both: raw blocking sockets with prepared requests, whose answers are
  checked for errors; or librdkafka through confluent-kafka with acks=all. Consumers have
  `queued.min.messages=1000000` and `fetch.queue.backoff.ms=2`, because librdkafka's defaults stall it with small
  messages.
* ottla checks every record of every batch, as Apache Kafka does.
* Before each throughput measurement free memory is filled with pages of a ballast file, so that new pages come from
  reclaim, as on a machine in use.
* CPU is the broker's own time (the process and its children) per request or byte. MB are 10⁶ bytes: of record
  batches over raw sockets, of message values with librdkafka.
* One measurement writes at most {write_gb:.1f} GB, so that the writer does not wait for the disk.
* The cold reader's file is removed from the page cache before every round. If the host caches the disk, the figure
  shows the work of a cold read, not the waiting."""

LIMITS = """\
Client and broker share two cores over loopback, and each partition has one replica. One ottla broker is one process
on one core, and Apache Kafka uses all cores: with more cores one ottla broker is slower and one per core
(`--processes`) is faster, see [sixteen cores](#sixteen-cores)."""


def terminal_table(results: Results) -> str:
    """The table as plain text."""
    cells = [HEADINGS, *(_cells(line) for line in lines(results))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    drawn = [_draw(row, widths) for row in cells]
    drawn.insert(1, "-" * len(drawn[0]))
    return "\n".join([*drawn, "", *_summary(results), *(f"FAILED {failure}" for failure in results.failures)])


def write_report(results: Results, path: Path, images: Path) -> None:
    """Writes the page and its plots; the page links the images relatively."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images.mkdir(parents=True, exist_ok=True)
    plots = write_plots(results, images)
    links = {title: os.path.relpath(image, path.parent) for title, image in plots.items()}
    path.write_text(_page(results, links) + kept_sections(path))


def kept_sections(path: Path) -> str:
    """The manually added results of other commands after the generated part."""
    text = path.read_text() if path.exists() else ""
    at = text.find(f"\n## {FIRST_KEPT}\n")
    return text[at:] if at >= 0 else ""


def _page(results: Results, plots: dict[str, str]) -> str:
    options = results.data["options"]
    quick = ", quick mode: an impression, not a result" if options["is_non_blocking"] else ""
    parts = [
        "# Performance",
        "",
        "This page compares the speed of ottla and Apache Kafka. `make bench` (`python -m bench`) generates it, except",
        f"the sections from [three brokers](#three-brokers) on. Taken on {results.data['started']}, median of",
        f"{len(results.rounds)}, {options['seconds']:g} s a measurement{quick}. Tables have the figures with a goal.",
        "",
        *_summary(results),
        "",
        *_noise(results),
        *_missed(results),
        *_plots(plots),
        *_tables(results),
        *_machine(results),
        "## How it is measured",
        "",
        METHOD.format(
            write_gb=options["write_bytes_max"] / 1e9, once=", ".join(name for name in SECTIONS if name in ONCE)
        ),
        "",
        "## What the figures do not say",
        "",
        LIMITS,
    ]
    return "\n".join(parts) + "\n"


def _summary(results: Results) -> list[str]:
    judged = [line for line in lines(results) if line.is_met is not None]
    met = sum(1 for line in judged if line.is_met)
    return [f"{met} of {len(judged)} goals are met."] if judged else ["No goal could be judged."]


def _noise(results: Results) -> list[str]:
    measured = (figures for section, figures in results.measurements() if section not in TWO_CLIENT_SECTIONS)
    return noise(figures for figures in measured if figures.get("seconds", 0) >= 0.5)


def noise(measurements: Iterable[Figures]) -> list[str]:
    """CPU time of other processes during the run, reported to the reader."""
    cores = os.cpu_count() or 1
    shares = [
        (figures["other_cpu_s"] + figures["stolen_s"]) / (figures["seconds"] * cores)
        for figures in measurements
        if "other_cpu_s" in figures
    ]
    if not shares:
        return []
    noisy = sum(share > NOISE_SHARE_MAX for share in shares)
    text = f"Others (kernel threads included) used {sorted(shares)[len(shares) // 2]:.1%} of the machine in the median"
    text += f" measurement, {max(shares):.1%} at most."
    if noisy:
        text += f" **In {noisy} of {len(shares)} measurements it was more than {NOISE_SHARE_MAX:.0%}: read with care.**"
    return [text, ""]


def _missed(results: Results) -> list[str]:
    missed = [line for line in lines(results) if line.is_met is False]
    out = ["## What is missed", ""]
    for line in missed:
        figure = f"{format_ratio(line.ratio)} {TIMES} Kafka" if line.row.goal and line.row.goal.is_ratio else ""
        figure = figure or line.value_text(line.ottla)
        out.append(f"* {line.row.label}: {figure}, goal {line.goal_text}; missed by {line.missed_by or 0:.1%}")
    out += [f"* could not be measured: {failure}" for failure in results.failures]
    return [*out, ""] if len(out) > 2 else ["Nothing is missed.", ""]


def _plots(plots: dict[str, str]) -> list[str]:
    return [text for title, link in plots.items() for text in (f"![{title}]({link})", "")]


def _tables(results: Results) -> list[str]:
    out: list[str] = []
    measured = lines(results)
    for section, title in section_titles().items():
        members = [line for line in measured if _section_of(line) == section and line.row.goal is not None]
        if not members:
            continue
        out += [
            f"## {title}",
            "",
            "| Figure | Apache Kafka | ottla (range) | Ratio | CPU (Kafka, ottla) |",
        ]
        out += ["|---|---:|---:|---:|---:|", *(_markdown_row(line) for line in members), ""]
    return out


def _machine(results: Results) -> list[str]:
    out = ["## The machine", "", "| | |", "|---|---|"]
    out += [f"| {name} | {value} |" for name, value in results.data["machine"].items()]
    for name, label in MACHINE_ROWS.items():
        value = results.median(PHYSICAL, f"machine.{name}.mb_per_s")
        if value is not None:
            out.append(f"| {label} | {format_value(value, 'MB/s')} |")
    return [*out, ""]


def _markdown_row(line: Line) -> str:
    label, kafka, ottla, ratio, _, _, *cpu = _cells(line)
    low, high = format_value(line.ottla_low, ""), format_value(line.ottla_high, "")
    if low != high:
        ottla += f" ({low}{DASH}{high})"
    return f"| {label} | {kafka} | {ottla} | {ratio} | {_both(*cpu)} |"


def _both(kafka: str, ottla: str) -> str:
    """Two values of the same unit, with the unit once."""
    number, _, unit = kafka.partition(" ")
    return f"{number}, {ottla}" if unit and ottla.endswith(f" {unit}") else ", ".join(filter(None, (kafka, ottla)))


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.row.label,
        line.value_text(line.kafka),
        line.value_text(line.ottla),
        format_ratio(line.ratio),
        line.goal_text,
        line.verdict,
        line.cpu_text(line.kafka_cpu),
        line.cpu_text(line.ottla_cpu),
    )


def _section_of(line: Line) -> str:
    return "startup" if line.row.section == "memory" else line.row.section


def _draw(row: tuple[str, ...], widths: list[int]) -> str:
    first, *others = [
        cell.ljust(width) if not column else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join([first, *others]).rstrip()
