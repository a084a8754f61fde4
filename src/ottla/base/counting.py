"""Numbers of things in sentences: `1 move has`, `2 moves have`."""

from __future__ import annotations

MANY = {"is": "are", "has": "have", "stays": "stay", "gets": "get"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """A number with its noun, and with its verb where one follows; the verb is given as for one."""
    words = f"{number} {noun}{'' if number == 1 else 's'}"
    if not verb:
        return words
    return f"{words} {verb if number == 1 else MANY[verb]}"
