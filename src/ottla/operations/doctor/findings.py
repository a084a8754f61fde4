"""Findings of a diagnosis, and helpers for their texts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

from ottla.operations.doctor.failure_cases import CASES
from ottla.operations.doctor.login_failures import LOGIN_CASE, find_login_fault

NAMES_MAX = 5  # listed in one finding; the rest is counted


class Severity(Enum):
    """PROBLEM fails now, WARNING fails after the next incident, NOTE is information."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One finding; `case` is the number of a failure case, or ""."""

    severity: Severity
    case: str
    what: str
    cause: str
    cure: str


def case_finding(severity: Severity, case: str, what: str) -> Finding:
    """A finding of a known failure case."""
    return Finding(severity, case, what, CASES[case].cause, CASES[case].remedy)


def login_failure(severity: Severity, what: str, said: str) -> Finding:
    """A failed login, with the cause that its error message allows."""
    finding, fault = case_finding(severity, LOGIN_CASE, what), find_login_fault(said)
    return finding if fault is None else finding._replace(cause=fault.cause, cure=fault.cure)


def shorten_list(names: Iterable[str]) -> str:
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
