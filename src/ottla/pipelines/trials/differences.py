"""Compares actual and expected rows, with a readable report.

Values are equal if they mean the same: 1 and 1.0, the same time in any notation (with a zone), doubles that agree in 12
digits.
Text and numbers, true and 1, null and a missing column differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)")
EXACT_MAX = 1 << 53
SHOWN_MAX = 10
LINE_LENGTH_MAX = 300

Row = Mapping[str, Any]
Fits = Callable[[Row, Row], bool]  # (expected, got)


class Pairs(NamedTuple):
    """The unmatched rows of both sides."""

    missing: list[Row]
    unexpected: list[Row]


def difference(
    place: str,
    expected: Sequence[Row],
    got: Sequence[Row],
    *,
    is_ordered: bool = False,
    ignored: Collection[str] = (),
    fits: Fits,
) -> list[str]:
    """The lines of the report; empty if there is no difference."""
    wanted = [without_columns(row, ignored) for row in expected]
    came = [without_columns(row, ignored) for row in got]
    if is_ordered:
        return _ordered(place, wanted, came, fits)
    pairs = match_rows(wanted, came, fits)
    if not pairs.missing and not pairs.unexpected:
        return []
    right = len(wanted) - len(pairs.missing)
    head = f"{place}: {right} of {_rows(len(wanted))} came as expected, {_rows(len(came))} came in all"
    if not wanted:
        head = f"{place}: nothing is expected, {_rows(len(came))} came"
    return [head, *_shown(pairs)]


def match_rows(expected: Sequence[Row], got: Sequence[Row], fits: Fits) -> Pairs:
    """A maximum matching, so that an unspecific expectation does not take the row of a specific one."""
    choices = [[number for number, row in enumerate(got) if fits(wanted, row)] for wanted in expected]
    owner: dict[int, int] = {}

    def settle(wanted: int, seen: set[int]) -> bool:
        for number in choices[wanted]:
            if number not in seen:
                seen.add(number)
                if number not in owner or settle(owner[number], seen):
                    owner[number] = wanted
                    return True
        return False

    missing = [row for number, row in enumerate(expected) if not settle(number, set())]
    return Pairs(missing, [row for number, row in enumerate(got) if number not in owner])


def matches_all_columns(expected: Row, got: Row) -> bool:
    """Compares all columns."""
    return bool(normalize(expected) == normalize(got))


def matches_given_fields(expected: Row, got: Row) -> bool:
    """Compares only the given fields; `reason` may be a part of the text."""
    return all(
        str(value) in str(got.get(name)) if name == "reason" else _same_part(value, got.get(name))
        for name, value in expected.items()
    )


def _same_part(expected: Any, got: Any) -> bool:
    """A key or value may be written as text or as its JSON value."""
    if isinstance(got, str) and not isinstance(expected, str | bytes | None):
        got = _parsed(got)
    elif isinstance(expected, str | bytes) and isinstance(got, Mapping | list):
        expected = _parsed(expected)
    return bool(normalize(expected) == normalize(got))


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def normalize(value: Any) -> Any:
    """A form in which equal values compare equal."""
    if isinstance(value, Mapping):
        return {str(key): normalize(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [normalize(each) for each in value]
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, int | float | Decimal):
        return ("number", _number(value))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return ("moment", moment)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, str) and MOMENT.fullmatch(value):
        try:
            return ("moment", datetime.fromisoformat(value).astimezone(UTC))
        except ValueError:
            return value
    return value


def without_columns(row: Row, ignored: Collection[str]) -> Row:
    """Without these columns of a row, or of a record's value."""
    left = {name: value for name, value in row.items() if name not in ignored}
    if ignored and isinstance(left.get("value"), Mapping):
        left["value"] = {name: value for name, value in left["value"].items() if name not in ignored}
    return left


def as_line(row: Any) -> str:
    text = json.dumps(_readable(row), default=_shown_value, ensure_ascii=False)
    return text if len(text) <= LINE_LENGTH_MAX else f"{text[:LINE_LENGTH_MAX]}…"


def _readable(value: Any) -> Any:
    """Times without trailing zeros."""
    if isinstance(value, Mapping):
        return {str(name): _readable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in value]
    found = normalize(value) if isinstance(value, str) else None
    return _shown_value(found[1]) if isinstance(found, tuple) else value


def _number(value: float | Decimal) -> Any:
    if value == value and abs(value) != float("inf") and value == int(value):  # # noqa: PLR0124 (not NaN)
        return int(value)
    if isinstance(value, Decimal):
        value = float(value)
    return f"{value:.12g}"


def _ordered(place: str, expected: Sequence[Row], got: Sequence[Row], fits: Fits) -> list[str]:
    for number, (wanted, came) in enumerate(zip(expected, got, strict=False), start=1):
        if not fits(wanted, came):
            return [f"{place}: row {number} is another one", *_pair_lines(wanted, came)]
    if len(expected) == len(got):
        return []
    rest = Pairs(list(expected[len(got) :]), list(got[len(expected) :]))
    return [f"{place}: {_rows(len(expected))} expected, {_rows(len(got))} came", *_shown(rest)]


def _shown(pairs: Pairs) -> list[str]:
    """Similar rows are shown together, with the columns in which they differ."""
    lines: list[str] = []
    unexpected = list(pairs.unexpected)
    for wanted in pairs.missing[:SHOWN_MAX]:
        near = max(unexpected, key=lambda came: _similarity(wanted, came), default=None)
        if near is None or not _similarity(wanted, near):
            lines.append(f"  missing       {as_line(wanted)}")
        else:
            unexpected.remove(near)
            lines += _pair_lines(wanted, near)
    lines += [f"  not expected  {as_line(row)}" for row in unexpected[:SHOWN_MAX]]
    hidden = max(len(pairs.missing) - SHOWN_MAX, 0) + max(len(unexpected) - SHOWN_MAX, 0)
    return [*lines, f"  … and {hidden} more"] if hidden else lines


def _pair_lines(wanted: Row, came: Row) -> list[str]:
    lines = [f"  expected      {as_line(wanted)}", f"  got           {as_line(came)}"]
    ours, theirs = _leaves(wanted), _leaves(came)
    for name in [*ours, *(name for name in theirs if name not in ours and name.split(".")[0] in wanted)]:
        if name not in theirs:
            lines.append(f"    {name}: expected {as_line(ours[name])}, there is no such column")
        elif name not in ours:
            lines.append(f"    {name}: not expected, got {as_line(theirs[name])}")
        elif not matches_given_fields({name: ours[name]}, {name: theirs[name]}):
            lines.append(f"    {name}: expected {as_line(ours[name])}, got {as_line(theirs[name])}")
    return lines


def _similarity(wanted: Row, came: Row) -> int:
    theirs = _leaves(came)
    return sum(normalize(value) == normalize(theirs.get(name, ...)) for name, value in _leaves(wanted).items())


def _leaves(row: Row, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _shown_value(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return float(value) if isinstance(value, Decimal) else str(value)
