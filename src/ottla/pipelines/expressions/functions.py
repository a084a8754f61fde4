"""Which functions of Spark an expression may call: `functions.tsv`, one line for each, reviewed by hand.

The list is made from Spark's own registry (SHOW FUNCTIONS); a test fails if Spark has a function that is not in it.
What is not in the list is refused.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

REASONS: Final = {
    "code": "which runs code",
    "files": "which reads files, or what a record names",
    "fails": "which stops the whole query on one bad record",
    "random": "and a replay would give another result",
    "session": "which tells about the session and its catalog",
    "table": "which is a table of Spark",
}
ALLOWED: Final = ("allowed", "generator", "clock", "clock without arguments", "time of day")


class Function(NamedTuple):
    kind: str
    cure: str = ""


@cache
def functions() -> dict[str, Function]:
    text = resources.files(__package__).joinpath("functions.tsv").read_text()
    lines = (line.split("\t") for line in text.splitlines())
    return {name: Function(kind, *cure) for name, kind, *cure in lines}


def problem_of(name: str, arguments: int) -> str:
    """Why this function must not be called, or ""."""
    found = functions().get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), usable(), n=1)
        cure = f"; did you mean {near[0]}()?" if near else ""
        return f"calls {name}(), which is no function of Spark{cure}"
    if found.kind in ALLOWED or (name.lower() == "aes_encrypt" and arguments >= AES_WITH_VECTOR):
        return ""
    return f"calls {name}(), {REASONS[found.kind]}{'; ' if found.cure else ''}{found.cure}"


def usable() -> list[str]:
    return [name for name, function in functions().items() if function.kind in ALLOWED]


def kind_of(name: str) -> str:
    found = functions().get(name.lower())
    return found.kind if found else ""


AES_WITH_VECTOR: Final = 5  # arguments, with the initialisation vector
