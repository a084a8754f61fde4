"""Whether the brokers take a regular expression: they know the syntax of RE2, without look-arounds and back-references.

google-re2 decides, as in the broker; the reasons are those that Kafka's tool prints.
"""

from __future__ import annotations

from ottla.cli.terminal import ToolError

# What google-re2 says -> what RE2/J, which Kafka uses, says.
_REASONS = {
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def regex_problem(pattern: str) -> str | None:
    """Why a regular expression is not valid, None if it is."""
    try:
        import re2  # noqa: PLC0415 (only needed here)
    except ImportError:
        raise ToolError("checking a regular expression needs google-re2: pip install google-re2") from None
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as problem:
        (cause, *_) = problem.args
        words = cause.decode() if isinstance(cause, bytes) else str(cause)
        reason = words.partition(": ")[0]
        return _REASONS.get(reason, reason)
    return None
