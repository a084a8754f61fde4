"""Errors of MIT's library in words."""

from __future__ import annotations

import pytest

from ottla.security.kerberos import ERROR_TABLE, OTHER, fault_message, fault_of


@pytest.mark.parametrize(
    ("number", "is_acceptor", "word"),
    [
        (7, False, "service name"),
        (35, True, "service name"),
        (24, False, "password"),
        (31, False, "password"),
        (31, True, "kvno"),
        (44, True, "kvno"),
        (37, True, "clock"),
        (32, True, "expired"),
        (156, False, "kdc"),
        (181, True, "keytab"),
        (6, False, "principal"),
    ],
)
def test_what_a_number_means(number: int, is_acceptor: bool, word: str) -> None:
    signed = ERROR_TABLE + number
    assert fault_of(signed, is_acceptor=is_acceptor).name == word
    assert fault_of(signed + (1 << 32), is_acceptor=is_acceptor).name == word  # as the library tells it


def test_unknown_numbers() -> None:
    assert fault_of(0, is_acceptor=True) is OTHER
    assert fault_of(ERROR_TABLE + 250, is_acceptor=False) is OTHER


def test_a_line_has_cause_words_and_cure() -> None:
    fault = fault_of(ERROR_TABLE + 37, is_acceptor=True)
    assert fault_message(fault, "Clock skew too great") == f"{fault.cause} (Clock skew too great): {fault.cure}"
    assert fault_message(fault, "Unknown error") == f"{fault.cause}: {fault.cure}"
