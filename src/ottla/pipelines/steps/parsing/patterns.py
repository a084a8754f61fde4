"""Regular expressions of pipelines: RE2's language, so that no text can make one run for ever or overflow a stack."""

from __future__ import annotations

import re

LENGTH_MAX = 100_000


def check_pattern(pattern: str) -> str | None:
    """Why this is no regular expression, or None."""
    import re2  # noqa: PLC0415 (loaded when a pattern comes)

    options = re2.Options()
    options.log_errors = False
    if len(pattern) > LENGTH_MAX:
        return f"longer than {LENGTH_MAX} characters"
    try:
        re2.compile(pattern, options)
    except re2.error as problem:
        text = problem.args[0] if problem.args else problem
        said = text.decode() if isinstance(text, bytes) else str(text)
        hint = "; look-around and back-references are not possible" if re.search(r"perl operator|escape", said) else ""
        return said + hint
    return None


def group_names(pattern: str) -> list[str]:
    """The named groups, in order. The pattern must be a good one."""
    import re2  # noqa: PLC0415

    return list(re2.compile(for_re2(pattern)).groupindex)


def unnamed_groups(pattern: str) -> int:
    import re2  # noqa: PLC0415

    compiled = re2.compile(for_re2(pattern))
    return int(compiled.groups) - len(compiled.groupindex)


def for_re2(pattern: str) -> str:
    """`(?<name>` is written `(?P<name>` there."""
    return re.sub(r"\(\?<([A-Za-z_])", r"(?P<\1", pattern)
