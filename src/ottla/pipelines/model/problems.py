"""What is wrong with a pipeline, told so that it can be mended: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]


class Problem(NamedTuple):
    """`path` leads from the top of the document to the value that is wrong."""

    path: Path
    cause: str
    cure: str = ""

    def text(self, file: str = "", lines: Lines | None = None) -> str:
        """One line, as compilers write them: FILE:LINE: PLACE: CAUSE; CURE."""
        line = nearest_line(self.path, lines or {})
        where = [part for part in (file, str(line) if line else "") if part]
        place = f"{place_name(self.path)}: " if self.path else ""
        return f"{':'.join(where)}{': ' if where else ''}{place}{self.cause}{'; ' if self.cure else ''}{self.cure}"


class PipelineError(Exception):
    """A pipeline that cannot run as it is written."""

    def __init__(self, problems: Iterable[Problem], file: str = "", lines: Lines | None = None) -> None:
        self.problems = list(problems)
        self.file = file
        self.lines = dict(lines or {})
        super().__init__("\n".join(self.texts()))

    def texts(self) -> list[str]:
        return [problem.text(self.file, self.lines) for problem in self.problems]


def nearest_line(path: Path, lines: Lines) -> int | None:
    """The line of the value, or of the nearest thing around it that has one."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def place_name(path: Path) -> str:
    """('streams', 'views', 'steps', 0, 'filter', 'where') -> views, step 1, filter, where"""
    words: list[str] = []
    for part in path:
        if isinstance(part, int):
            words.append(f"step {part + 1}" if words and words[-1] == "steps" else str(part + 1))
        elif not (part == "streams" and not words):
            words.append(part)
    return ", ".join(word for word in words if word != "steps")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A cure for a misspelt word."""
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
