"""What a finding is, and the words of findings."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

from ottla.operations.doctor.cases import CASES
from ottla.operations.doctor.logins import LOGIN_CASE, login_fault

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


def login_failure(severity: Severity, what: str, said: str) -> Finding:
    """A login that failed; the cause is as exact as what was said about it allows."""
    finding, fault = known(severity, LOGIN_CASE, what), login_fault(said)
    return finding if fault is None else finding._replace(cause=fault.cause, cure=fault.cure)


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
