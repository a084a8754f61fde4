"""Files of YAML with sections that have entries: read entry by entry, all problems at once. Pure.

Rules:
1. A section that the file lacks is none of its business; one that is there and empty ([]) wants that there is none.
2. Nothing is guessed: an unknown word, or a name that YAML takes for a number, is a problem with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.client.quota_words import QuotaError
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean

VALUES_MAX: Final = 1_000_000
PROBLEMS_MAX: Final = 1000  # nobody reads more, and looking for what was meant takes time


class FileError(Exception):
    """What is wrong with a file, one line each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class WrongError(Exception):
    """What is wrong with one entry; `word` says where in it."""

    def __init__(self, cause: str, word: str = "", cure: str = "") -> None:
        super().__init__(cause)
        self.word = word
        self.cure = cure


class Sections:
    """The sections of a file. Whoever has read them all calls `finish`, which tells what was wrong."""

    def __init__(
        self, text: str, file: str, known: Sequence[str], is_as_written: Callable[[Path], bool] | None = None
    ) -> None:
        """Raises FileError for what has no sections at all."""
        self.problems: list[Problem] = []
        try:
            self.document = parse_document(text, file, VALUES_MAX, is_as_written)
            values = self.document.values
            if not isinstance(values, dict) or not values:
                raise self.document.error(Problem((), f"the file has none of the sections {', '.join(known)}"))
        except PipelineError as problem:
            raise FileError(problem.texts()) from None
        self.values: dict[str, Any] = values
        for name in values:
            if name not in known:
                self.problems.append(Problem((name,), f"there is no section {name!r}", did_you_mean(name, known)))

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __repr__(self) -> str:
        return f"<Sections {', '.join(self.values)} problems={len(self.problems)}>"

    def each(self, name: str, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Show every entry of a section to `take`, which raises WrongError."""
        entries = self.values.get(name, [])
        if not isinstance(entries, list):
            self.problems.append(Problem((name,), "not a list", "write [] where there shall be none"))
            return
        for number, entry in enumerate(entries):
            if len(self.problems) >= PROBLEMS_MAX:
                return
            self.one((name, number), entry, take)

    def one(self, path: Path, entry: object, take: Callable[[Mapping[str, Any]], None]) -> None:
        if not isinstance(entry, dict):
            self.problems.append(Problem(path, f"{entry!r} is not of the form {{word: value, ...}}"))
            return
        try:
            take(entry)
        except WrongError as wrong:
            self.problems.append(Problem((*path, wrong.word) if wrong.word else path, str(wrong), wrong.cure))
        except QuotaError as wrong:
            self.problems.append(Problem((*path, wrong.word) if wrong.word else path, str(wrong)))

    def finish(self) -> None:
        """Raises FileError if anything was wrong."""
        if self.problems:
            raise FileError(self.document.error(*self.problems).texts())


def add_once(found: dict[Any, Any], more: Iterable[tuple[Any, Any]]) -> None:
    for key, value in more:
        if key in found:
            raise WrongError("the same stands above already", cure="remove one of them")
        found[key] = value


def check_words(entry: Mapping[str, Any], known: Sequence[str]) -> None:
    for word in entry:
        if word == "password":
            raise WrongError("passwords do not stand in this file", word, "ottla users add, or ottla security hash")
        if word not in known:
            raise WrongError(f"unknown word {word!r}", word, did_you_mean(word, known))


def text_of(entry: Mapping[str, Any], word: str) -> str:
    value = entry.get(word)
    if value is None:
        raise WrongError(f"{word} is missing", word if word in entry else "")
    if not isinstance(value, str):
        raise WrongError(f"{value!r} is not text", word, "put it in quotes")
    if not value:
        raise WrongError(f"{word} is empty", word)
    return value


def number_of(entry: Mapping[str, Any], word: str, least: int, most: int) -> int:
    value = entry.get(word)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongError(f"{word} is a whole number", word if word in entry else "")
    if not least <= value <= most:
        raise WrongError(f"{word} is {least} to {most}", word)
    return value
