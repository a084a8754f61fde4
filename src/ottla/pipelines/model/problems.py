"""Problems of a pipeline: where, what, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]


class Problem(NamedTuple):
    """`path` leads from the top of the document to the wrong value."""

    path: Path
    cause: str
    cure: str = ""

    def text(self, file: str = "", lines: Lines | None = None) -> str:
        """One line in the form of compiler messages: FILE:LINE: PLACE: CAUSE; CURE."""
        line = nearest_line(self.path, lines or {})
        where = [part for part in (file, str(line) if line else "") if part]
        place = f"{path_text(self.path)}: " if self.path else ""
        return f"{':'.join(where)}{': ' if where else ''}{place}{self.cause}{'; ' if self.cure else ''}{self.cure}"


class PipelineError(Exception):
    """A pipeline that cannot run as written."""

    def __init__(self, problems: Iterable[Problem], file: str = "", lines: Lines | None = None) -> None:
        self.problems = list(problems)
        self.file = file
        self.lines = dict(lines or {})
        super().__init__("\n".join(self.texts()))

    def texts(self) -> list[str]:
        return [problem.text(self.file, self.lines) for problem in self.problems]


def nearest_line(path: Path, lines: Lines) -> int | None:
    """The line of the value, or of the nearest enclosing value that has one."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def path_text(path: Path) -> str:
    """Convert ('streams', 'views', 'steps', 0, 'filter', 'where') to "views, step 1, filter, where"."""
    words: list[str] = []
    for part in path:
        if isinstance(part, int):
            words.append(f"step {part + 1}" if words and words[-1] == "steps" else str(part + 1))
        elif not (part == "streams" and not words):
            words.append(part)
    return ", ".join(word for word in words if word != "steps")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint for a misspelled word."""
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
