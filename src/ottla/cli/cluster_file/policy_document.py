"""YAML files with sections of entries: read entry by entry, with all problems reported at once.

Rules:
1. A missing section is ignored; an empty section ([]) requests that there are no entries.
2. Nothing is guessed: an unknown key, or a name that YAML reads as a number, is a problem with its line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.cli.terminal import UsageError, stdin_bytes, warn
from ottla.client.quotas import QuotaError
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean

VALUES_MAX: Final = 1_000_000
PROBLEMS_MAX: Final = 1000  # bounds the time spent on suggestions


class FileError(Exception):
    """The problems of a file, one line each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class EntryError(Exception):
    """The problem of one entry; `word` is the key that it concerns."""

    def __init__(self, cause: str, word: str = "", cure: str = "") -> None:
        super().__init__(cause)
        self.word = word
        self.cure = cure


class Sections:
    """The sections of a file. After all are read, call `raise_problems`, which raises the problems."""

    def __init__(
        self, text: str, file: str, known: Sequence[str], keeps_text: Callable[[Path], bool] | None = None
    ) -> None:
        """Raises FileError for a file without sections."""
        self.problems: list[Problem] = []
        try:
            self.document = parse_document(text, file, VALUES_MAX, keeps_text)
            values = self.document.values
            if not isinstance(values, dict) or not values:
                raise self.document.error(Problem((), f"the file has none of the sections {', '.join(known)}"))
        except PipelineError as problem:
            raise FileError(problem.texts()) from None
        self.values: dict[str, Any] = values
        for name in values:
            if name not in known:
                self.problems.append(Problem((name,), f"unknown section {name!r}", did_you_mean(name, known)))

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __repr__(self) -> str:
        return f"<Sections {', '.join(self.values)} problems={len(self.problems)}>"

    def read_entries(self, name: str, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Pass each entry of a section to `take`, which raises WrongError."""
        entries = self.values.get(name, [])
        if not isinstance(entries, list):
            self.problems.append(Problem((name,), "not a list", "write [] for an empty section"))
            return
        for number, entry in enumerate(entries):
            if len(self.problems) >= PROBLEMS_MAX:
                return
            self.read_entry((name, number), entry, take)

    def read_entry(self, path: Path, entry: object, take: Callable[[Mapping[str, Any]], None]) -> None:
        if not isinstance(entry, dict):
            self.problems.append(Problem(path, f"{entry!r} is not of the form {{word: value, ...}}"))
            return
        try:
            take(entry)
        except EntryError as wrong:
            self.problems.append(Problem((*path, wrong.word) if wrong.word else path, str(wrong), wrong.cure))
        except QuotaError as wrong:
            self.problems.append(Problem((*path, wrong.word) if wrong.word else path, str(wrong)))

    def raise_problems(self) -> None:
        """Raises FileError if there are problems."""
        if self.problems:
            raise FileError(self.document.error(*self.problems).texts())


def add_unique(found: dict[Any, Any], more: Iterable[tuple[Any, Any]]) -> None:
    for key, value in more:
        if key in found:
            raise EntryError("duplicate of an entry above", cure="remove one of them")
        found[key] = value


def check_keys(entry: Mapping[str, Any], known: Sequence[str]) -> None:
    for word in entry:
        if word == "password":
            raise EntryError("passwords are not allowed in this file", word, "ottla users add, or ottla security hash")
        if word not in known:
            raise EntryError(f"unknown key {word!r}", word, did_you_mean(word, known))


def required_text(entry: Mapping[str, Any], word: str) -> str:
    value = entry.get(word)
    if value is None:
        raise EntryError(f"{word} is missing", word if word in entry else "")
    if not isinstance(value, str):
        raise EntryError(f"{value!r} is not text", word, "put it in quotes")
    if not value:
        raise EntryError(f"{word} is empty", word)
    return value


def required_number(entry: Mapping[str, Any], word: str, least: int, most: int) -> int:
    value = entry.get(word)
    if not isinstance(value, int) or isinstance(value, bool):
        raise EntryError(f"{word} is a whole number", word if word in entry else "")
    if not least <= value <= most:
        raise EntryError(f"{word} is {least} to {most}", word)
    return value


# ---- loading
FILE_BYTES_MAX: Final = 16 << 20  # 100,000 entries: read in seconds, with less than a gigabyte of memory
STDIN: Final = "-"
LINES_MAX: Final = 20


def load_policy_text(path: str) -> str:
    """Read a file. Raises UsageError; warns if other users can read hashed passwords in it."""
    try:
        if path == STDIN:
            data = stdin_bytes().read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
                is_open = os.fstat(file.fileno()).st_mode & 0o077
            if is_open and b"salted_password" in data:
                warn(f"warning: {path} contains hashed passwords and is readable by other users: chmod 600 {path}")
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB: split it by sections")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None


def display_path(path: str) -> str:
    return "<stdin>" if path == STDIN else path


def print_problems(tool: str, problem: FileError) -> None:
    for line in problem.lines[:LINES_MAX]:
        warn(f"{tool}: {line}")
    if len(problem.lines) > LINES_MAX:
        words = "or more others" if len(problem.lines) >= PROBLEMS_MAX else "more"
        warn(f"{tool}: and {len(problem.lines) - LINES_MAX} {words}")


def warn_unmanaged(unmanaged: Mapping[str, int]) -> None:
    """Report what is in the cluster, but not in the file."""
    if unmanaged:
        counts = ", ".join(f"{name}: {count}" for name, count in unmanaged.items())
        warn(f"note: not in the file and left alone, --prune removes it: {counts}")
