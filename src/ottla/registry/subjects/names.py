"""Names of subjects with their contexts: `orders-value` lies in the context `.`, `:.test:orders-value` in `.test`.

Rules:
1. Everybody else sees normalized names: the default context is never written.
2. `:*:` before a prefix stands for all contexts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
WILDCARD: Final = ":*:"
PREFIX: Final = ":."
RESERVED: Final = ("__GLOBAL", "__EMPTY")


class Qualified(NamedTuple):
    """A name taken apart."""

    context: str
    name: str

    def __str__(self) -> str:
        return f"{context_prefix(self.context)}{self.name}"


def qualified(subject: str) -> Qualified:
    if not subject.startswith(PREFIX):
        if subject.startswith(WILDCARD):
            return Qualified("*", subject[len(WILDCARD) :])
        return Qualified(DEFAULT_CONTEXT, subject)
    context, _, name = subject[1:].partition(":")
    return Qualified(context, name)


def context_prefix(context: str) -> str:
    """What stands before the names of a context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def context_of(subject: str | None) -> str:
    return DEFAULT_CONTEXT if subject is None else qualified(subject).context


def normalize(subject: str) -> str:
    return str(qualified(subject)) if subject.startswith(":") else subject


def within(parent: str, subject: str) -> str:
    """The name of a subject that somebody in the context of `parent` speaks of."""
    own = qualified(subject)
    return str(Qualified(qualified(parent).context, own.name)) if own.context == DEFAULT_CONTEXT else str(own)


def context_from(text: str) -> str:
    """The context that a path names, as `.test`, `test` or `:.test:`; raises ValueError."""
    context = text.removeprefix(":").removesuffix(":")
    if ":" in context:
        raise ValueError("Context name cannot contain a colon")
    return context if context.startswith(".") else f".{context}"


def is_valid(subject: str) -> bool:
    """Whether a schema may be registered under this name."""
    context, name = qualified(subject)
    return not has_controls(subject) and name not in RESERVED and context != GLOBAL_CONTEXT and bool(name)


def has_controls(subject: str) -> bool:
    return any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in subject)
