"""Progress of pipelines as text: one line per batch, and a table of row counts per step."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.operations.pipeline_runs.snapshots import Snapshot, total_of, total_rows
from ottla.operations.pipeline_runs.statuses import Cost

STEP_COLUMNS = ("stream", "step", "in", "kept", "filtered", "late", "dead", "rows made")
UNKNOWN = "?"
PROCESSES = ("Python", "Java", "Python workers")


def batch_line(now: Snapshot) -> str:
    """One line of plain text, without figures that the query does not have (a watermark, state)."""
    parts = [f"{now.query}: batch {now.batch}", f"{now.batch_rows:,} rows in {seconds(now.batch_ms)}"]
    came = "" if now.rows_in_per_s is None else f"{rate(now.rows_in_per_s)} in, "
    parts.append(f"{came}{rate(now.rows_done_per_s)} done")
    if now.lag is not None:
        parts.append(f"lag {now.lag:,}")
    if now.watermark_age_ms is not None:
        parts.append(f"watermark {age(now.watermark_age_ms)} ago")
    if now.state_rows or now.state_bytes:
        parts.append(f"state {now.state_rows:,} rows {size(now.state_bytes)}")
    if now.unsent:
        parts.append(waiting_text(now._replace(doing="")))
    return "  ".join(parts)


def waiting_text(now: Snapshot) -> str:
    """What the query waits for, and the dead letters to send; empty if there is nothing."""
    unsent = f"{now.unsent:,} dead {'letter' if now.unsent == 1 else 'letters'} to send" if now.unsent else ""
    return ", ".join(words for words in (now.doing, unsent) if words)


def cost_line(cost: Cost) -> str:
    """CPU time and memory."""
    memory = ", ".join(f"{words} {size(used)}" for words, used in zip(PROCESSES, cost.memory.values(), strict=True))
    return f"{cost.cpu_seconds:,.1f} s of CPU; memory: {memory}"


def growth_line(now: Snapshot) -> str:
    """State growth; empty if there is no state, or the growth is unknown."""
    if now.state_bytes_per_hour is None or now.state_rows_per_hour is None:
        return ""
    sign = "+" if now.state_bytes_per_hour >= 0 else ""
    return f"state {now.state_rows_per_hour:+,.0f} rows, {sign}{size(now.state_bytes_per_hour)} an hour"


def step_columns(snapshots: Sequence[Snapshot]) -> tuple[str, ...]:
    """With several queries a column names the query, since streams may be shared."""
    return ("query", *STEP_COLUMNS) if len(snapshots) > 1 else STEP_COLUMNS


def step_rows(snapshots: Sequence[Snapshot]) -> list[tuple[str, ...]]:
    """One row for each step: in = kept + filtered + late + dead."""
    return [
        (
            *((snapshot.query,) if len(snapshots) > 1 else ()),
            step.stream,
            f"{step.number} {step.step}",
            *(f"{number:,}" for number in (step.came, step.kept, step.filtered, step.late, step.dead)),
            f"{step.made:,}" if step.made != step.kept else "",
        )
        for snapshot in snapshots
        for step in snapshot.steps
    ]


def step_table(snapshots: Sequence[Snapshot]) -> list[str]:
    """The table as lines, numbers right-aligned; empty without steps."""
    rows = step_rows(snapshots)
    columns = step_columns(snapshots)
    return aligned(columns, rows, left=columns.index("in")) if rows else []


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """The first `left` columns are text, the others numbers."""
    table = [tuple(columns), *map(tuple, rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    lines: list[str] = []
    for row in table:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def end_line(snapshots: Sequence[Snapshot]) -> str:
    """Total counts: a record that several queries read counts once."""
    rows = total_rows(snapshots)
    batches = sum(each.batches for each in snapshots)
    steps = [step for each in snapshots for step in each.steps]
    dead, late = total_of(steps, "dead"), total_of(steps, "late")
    words = [f"{rows:,} rows in {batches:,} {'batch' if batches == 1 else 'batches'}"]
    words += [f"{dead:,} dead"] if dead else []
    words += [f"{late:,} late"] if late else []
    unsent = sum(each.unsent for each in snapshots)
    words += [f"{dead_letters_text(unsent)} not sent"] if unsent else []
    return ", ".join(words)


def dead_letters_text(number: int) -> str:
    return f"{number:,} dead {'letter is' if number == 1 else 'letters are'}"


def rate(per_s: float | None) -> str:
    return UNKNOWN if per_s is None else f"{per_s:,.{0 if per_s >= 10 or per_s == 0 else 1}f}/s"


def count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def seconds(ms: int | None) -> str:
    return UNKNOWN if ms is None else f"{ms / 1000:.2f} s"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 999.5 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return ""


def age(ms: int) -> str:
    """In one unit: 12.3 s, 5 min, 3 h, 40 d (watermarks of historical data are old)."""
    if abs(ms) < 120_000:
        return f"{ms / 1000:.1f} s"
    for name, unit_ms in (("d", 86_400_000), ("h", 3_600_000)):
        if abs(ms) >= 2 * unit_ms:
            return f"{ms / unit_ms:,.0f} {name}"
    return f"{ms / 60_000:.0f} min"
