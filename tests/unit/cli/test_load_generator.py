"""Payloads of the perf test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.perf.load_generator import chosen_payload, counted_payload, random_payload, read_payloads
from ottla.cli.terminal import ToolError


def test_random_payloads_are_letters_and_differ() -> None:
    payload = random_payload(50)
    made = [payload(number) for number in range(100)]
    assert {len(item) for item in made} == {50}
    assert len(set(made)) == 100
    assert all(item.isalpha() and item.isupper() for item in made)
    assert random_payload(50)(7) == made[7]


def test_counted_payloads_are_numbers() -> None:
    assert [counted_payload(number) for number in (0, 12)] == [b"0", b"12"]


def test_payloads_of_a_file_are_split_as_kafka_does(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_bytes(b"a\nb\n\nc\n")
    assert read_payloads(str(file), b"\n") == [b"a", b"b", b"", b"c"]
    assert read_payloads(str(file), b"b") == [b"a\n", b"\n\nc\n"]
    assert chosen_payload([b"only"])(3) == b"only"


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(ToolError, match=r"File does not exist or empty file provided\."):
            read_payloads(str(tmp_path / name), b"\n")
