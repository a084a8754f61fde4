"""What a finding is, and the words of findings."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

from ottla.cli.doctor.cases import CASES

NAMES_MAX = 5  # that a finding names before it says how many more there are


class Severity(Enum):
    """How bad it is: it fails now; it will fail when the next thing goes wrong; it is worth knowing."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One thing that was found; `case` is the number of a failure case, "" for what has none."""

    severity: Severity
    case: str
    what: str
    cause: str
    cure: str


def known(severity: Severity, case: str, what: str) -> Finding:
    """A finding that is one of the known cases."""
    return Finding(severity, case, what, CASES[case].cause, CASES[case].cure)


def some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - NAMES_MAX
    return ", ".join(listed[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def brokers_text(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    return f"broker{'' if len(listed) == 1 else 's'} {', '.join(map(str, listed))}"


def is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
