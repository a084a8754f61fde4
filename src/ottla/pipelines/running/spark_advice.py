"""Rewrites Spark's error messages: removes advice that does not apply here and adds advice that does. Pure.

Many messages of Spark end with a setting: `set "spark.sql.ansi.enabled" to "false"`. `ottla sql` has no settings, and
in a pipeline this one would make sums wrap around and texts become NULL silently. Filler phrases are removed too; CURES
has the replacements.
"""

from __future__ import annotations

import re
from typing import Final

BEFORE: Final = re.compile(
    r"^(?:Query \[id = \S+, runId = \S+\] terminated with exception: |\w*Exception: (?=\[[A-Z])|\[[A-Z][\w.]+\] "
    r"|You may get a different result due to the upgrading to Spark >= 3\.0:\s+)+"
)
NAME: Final = r"[\"'`<]*(?:spark\.[a-z][\w.]*\w)[\"'`>]*"
OR_SETTING: Final = re.compile(
    r",? (?:or:? (?:please |you can )?|if you want to [^,]*, please |consider to )"
    rf"(?:set(?:ting)?|increas\w+|enabl\w+)\b[^.;]*? {NAME}[^.;]*"
)
SETTING: Final = re.compile(
    r"(?<=[.;:'\"\]])\s*(?:1\)|(?:However|If|To|Set|You|Please|Consider|Enable|As a|Use|Disable)\b)"
    rf"(?:(?!\. )[^;])*?{NAME}.*?(?:\.(?=\s|$)|$)"
)
NOTHING: Final = re.compile(
    r" Please ensure that the value provided is in a valid format for defining an interval\."
    r"| You can reference the documentation for the correct format\."
    r"| If the issue persists, please double check that the input value is not null or empty and try again\.?"
    r"| (?:By changing this, you agree to|However, please note that) run(?:ning)? the query .*$"
    r"| with ANSI mode on|,? please check the input data|(?<=by zero\.) Use `\w+` to tolerate [^.]*\."
    r"|(?<=overflow\.) Use '\w+' to tolerate overflow and return NULL instead\."
)
PATTERNS: Final = "https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
OVERFLOW: Final = (
    "the result is more than its type holds: cast to DECIMAL(38, 0) or DOUBLE before, or have NULL with try_add, "
    "try_subtract, try_multiply, try_sum"
)
CURES: Final = (
    (re.compile(r"^Division by zero"), "NULLIF(divisor, 0) or try_divide give NULL instead"),
    (re.compile(r"^Remainder by zero"), "NULLIF(divisor, 0) or try_mod give NULL instead"),
    (re.compile(r"^(?:long |integer |int |short |byte )?overflow\b"), OVERFLOW),
    (
        re.compile(r"cannot be represented as Decimal\("),
        "cast to DOUBLE or to a DECIMAL with more digits (38 at most), or have NULL with try_cast, try_sum",
    ),
    (
        re.compile(r"^Invalid (?:value for \w+ \(valid values|date ')"),
        "try_make_timestamp and try_to_date(text, 'y-M-d') give NULL instead",
    ),
    (re.compile(r'cannot cast "\w+" to "\w+"'), "use a function for it, such as unix_timestamp, unix_date, encode"),
    (re.compile(r"hash expressions are prohibited on"), "take array_sort(map_entries(column)) instead of the map"),
    (
        re.compile(r"^Duplicate map key"),
        "let each key be there once before a map is made, with array_distinct or filter",
    ),
    (
        re.compile(r"^More than one row returned by a subquery"),
        "let it give one (max(column), LIMIT 1), or write IN (SELECT …)",
    ),
    (re.compile(r"week-based"), "write yyyy for the year, and EXTRACT(WEEK FROM time) for the week"),
    (re.compile(r"^Fail to recognize .* pattern in the DateTimeFormatter"), f"letters of patterns: {PATTERNS}"),
    (re.compile(r"^(?:Unable to parse '|Error parsing '.*' to interval)"), "intervals are like '1 hour 30 minutes'"),
    (re.compile(r"^The comparator has returned a NULL"), "let it give a number, with coalesce(…, 0)"),
    (re.compile(r"has duplicate arguments"), "give one of them another name"),
    (
        re.compile(r" near index \d+"),
        "that is about a regular expression, which is Java's: write [(] for a bracket itself",
    ),
    (
        re.compile(r"(?:year -?\d+ is out of range|ordinal must be >= 1|date value out of range)"),
        "a time outside of the years 1 to 9999 cannot be shown: cast it to STRING",
    ),
    (re.compile(r"^(?:YearMonth|Calendar)IntervalType\."), "an interval of months cannot be shown: cast it to STRING"),
    (re.compile(r'^Unsupported data type "TIMESTAMP'), "write TIMESTAMP"),
    (re.compile(r'^Unsupported data type "(?:BYTES|VARBINARY)'), "write BINARY"),
    (re.compile(r'^DataType "(?:VAR)?CHAR" requires'), "write STRING"),
    (
        re.compile(
            r"^(?:Not enough memory to build and broadcast|Could not execute broadcast|Cannot broadcast the table)"
        ),
        "let fewer rows or columns of the smaller table go into the join",
    ),
)  # fmt: skip
LAST: Final = re.compile(r"[.;:,\s]+$")


def with_advice(words: str) -> str:
    """One line of Spark's message, rewritten."""
    told = OR_SETTING.sub("", BEFORE.sub("", words.strip()))
    told = NOTHING.sub("", SETTING.sub("", told)).strip()
    cure = next((cure for pattern, cure in CURES if pattern.search(told)), "")
    if not cure or cure in told:
        return told
    return f"{LAST.sub('', told)}; {cure}"
