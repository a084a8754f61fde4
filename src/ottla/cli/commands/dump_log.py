"""`ottla dump-log`: prints the files of a partition in readable form."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.cli.arguments import Argument, Parser, flag, positive
from ottla.cli.log_dump import (
    SUFFIXES,
    Batch,
    Findings,
    SegmentWalk,
    base_offset_of,
    snapshot_lines,
    transaction_lines,
    walk_offset_index,
    walk_time_index,
)
from ottla.cli.records.formatters import Message
from ottla.cli.records.json_records import JsonFormatter
from ottla.cli.terminal import ToolError, UsageError, is_terminal, printable, warn
from ottla.operations.records.decoders import DecodedText, Decoder, decode_offsets, decode_transactions
from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.formats import FORMATS_HELP, make_format
from ottla.protocol.compression import CODEC_NAMES
from ottla.protocol.records import Record
from ottla.storage.producer_state import SnapshotError

EXAMPLES = """
ottla dump-log data/orders-0                              all files of a partition
ottla dump-log data/orders-0/*.log --records              with keys and values
ottla dump-log data/orders-0/*.log --records --json > orders.jsonl
ottla dump-log data/__consumer_offsets-3/*.log --records --decoder offsets
"""
DECODERS: dict[str, Decoder] = {"offsets": decode_offsets, "transactions": decode_transactions}
TEXT_FILES = ("leader-epoch-checkpoint", "partition.metadata")
COLUMNS = ("offsets", "records", "time", "position", "bytes", "codec", "producer", "epoch", "flags", "checksum")
WIDTHS = (21, 8, 23, 11, 9, 7, 14, 6, 12, 8)


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    if options.json and not options.records:
        raise UsageError("--json writes records: it needs --records")
    findings = Findings()
    paths = list(_files(options.paths))
    for path in paths:
        if len(paths) > 1 and not options.json:
            print(printable(f"{path}"))
        for line in _lines(path, options, findings):
            print(line)
    sys.stdout.flush()
    for line in findings.lines():
        warn(line)
    return 1 if findings.lines() else 0


def _parser() -> Parser:
    return Parser(
        prog="ottla dump-log",
        usage="ottla dump-log PATH ... [options]",
        description="Print the files of a partition.",
        examples=EXAMPLES,
        arguments=(
            Argument("paths", nargs="+", metavar="PATH", help="segment files or the folder of a partition"),
            flag("--records", help="records instead of batches"),
            flag("--json", help="records as JSON lines, in the input format of ottla produce"),
            Argument("--max-bytes", type=positive, metavar="N", help="read at most this much of each log"),
            Argument("--decoder", choices=sorted(DECODERS), help="decode the records of an internal topic"),
            *(
                Argument(f"--{part}-format", default="string", metavar="NAME", help=FORMATS_HELP)
                for part in ("key", "value")
            ),
        ),
    )


def _files(names: Sequence[str]) -> Iterator[Path]:
    """The named files; a folder means all of its files that can be printed."""
    for name in names:
        path = Path(name)
        if not path.exists():
            raise ToolError(f"{name} does not exist")
        if not path.is_dir():
            yield path
            continue
        found = sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES or entry.name in TEXT_FILES)
        if not found:
            raise ToolError(f"{name} holds no files of a partition")
        yield from found


def _lines(path: Path, options: argparse.Namespace, findings: Findings) -> Iterator[str]:
    try:
        if path.suffix == ".log":
            yield from _log_lines(path, options)
        elif options.json:
            return
        elif path.suffix == ".index":
            yield from (
                f"offset {entry.offset}\tposition {entry.position}" for entry in walk_offset_index(path, findings)
            )
        elif path.suffix == ".timeindex":
            entries = walk_time_index(path, findings)
            yield from (f"time {_time(entry.timestamp)}\toffset {entry.offset}" for entry in entries)
        elif path.suffix == ".txnindex":
            yield from transaction_lines(path)
        elif path.suffix == ".snapshot":
            yield from snapshot_lines(path)
        elif path.name in TEXT_FILES:
            yield from map(printable, path.read_text(errors="replace").splitlines())
        else:
            raise ToolError(f"{path} is not a file of a partition; known: {', '.join((*SUFFIXES, *TEXT_FILES))}")
    except SnapshotError as problem:
        raise ToolError(f"{path}: {problem}") from None


def _log_lines(path: Path, options: argparse.Namespace) -> Iterator[str]:
    base_offset_of(path)
    show = _RecordLines(options) if options.records else None
    if not options.records and is_terminal(sys.stdout):
        yield _row(COLUMNS)
    with open(path, "rb") as file:
        walk = SegmentWalk(file, str(path), 0, options.max_bytes)
        for batch in walk:
            if show is None:
                yield _row(_cells(batch))
            else:
                yield from show.lines(path, batch)
        if walk.end > walk.position and options.max_bytes is None:
            raise ToolError(f"{path}: {walk.end - walk.position} bytes at the end are not a whole batch")


class _RecordLines:
    """Formats the records of batches as text or JSON."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.key, self.value = make_format(options.key_format), make_format(options.value_format)
        self.decoder = DECODERS.get(options.decoder or "")
        self.json = JsonFormatter(self.key, self.value) if options.json else None

    def lines(self, path: Path, batch: Batch) -> Iterator[str]:
        if batch.header.is_control:
            return
        topic, _, number = path.absolute().parent.name.rpartition("-")
        partition = (topic, int(number)) if number.isdecimal() else (path.name, 0)
        for record in batch.records():
            try:
                yield self._line(partition, batch, record)
            except DeserializationError as problem:
                raise ToolError(f"record {record.offset} of {path}: {problem}") from None

    def _line(self, place: tuple[str, int], batch: Batch, record: Record) -> str:
        if self.json is not None and self.decoder is None:
            headers = list(record.headers)
            message = Message(
                *place, record.offset, batch.timestamp_type, record.timestamp, record.key, record.value, headers
            )
            return self.json.format(message).decode().rstrip("\n")
        found = self._text(record)
        if self.json is not None:
            fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
            return json.dumps(fields | {"key": found.key, "value": found.value})
        words = (f"{record.offset}", _time(record.timestamp), _or_null(found.key), _or_null(found.value))
        return "\t".join((*words[:2], *map(printable, words[2:])))

    def _text(self, record: Record) -> DecodedText:
        if self.decoder is not None:
            return self.decoder(record)
        key = None if record.key is None else self.key.text(record.key).decode("utf-8", "replace")
        return DecodedText(
            key, None if record.value is None else self.value.text(record.value).decode("utf-8", "replace")
        )


def _cells(batch: Batch) -> tuple[str, ...]:
    header = batch.header
    flags = [
        name for name, is_set in (("transaction", header.is_transactional), ("control", header.is_control)) if is_set
    ]
    codec = CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec)
    return (
        f"{header.base_offset}-{header.last_offset}",
        f"{header.record_count}",
        _time(header.max_timestamp),
        f"{batch.position}",
        f"{header.batch_bytes}",
        codec,
        f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else "-",
        f"{header.leader_epoch}",
        "+".join(flags) or "-",
        "good" if batch.is_valid else "BAD",
    )


def _row(cells: tuple[str, ...]) -> str:
    """Fixed columns on a terminal, tabs in a pipe. A log may have a million batches, so no table is built in memory."""
    if not is_terminal(sys.stdout):
        return "\t".join(cells)
    line = " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
    is_bad = cells[-1] == "BAD" and "NO_COLOR" not in os.environ
    return f"\x1b[31m{line}\x1b[0m" if is_bad else line


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def _or_null(text: str | None) -> str:
    return "null" if text is None else text
