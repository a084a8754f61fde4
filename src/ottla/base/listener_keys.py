"""Settings of single listeners: `listener.name.internal.max.connections=50`.

The listener's name is written small. Three keys act, or may at least be changed, for one listener; what else Kafka
knows under such a prefix belongs to TLS and SASL.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = "listener.name."
CHANGEABLE: Final = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})


class ListenerKey(NamedTuple):
    """A key of one listener, taken apart."""

    listener: str
    base: str


def split_listener_key(name: str) -> ListenerKey | None:
    """`listener.name.internal.max.connections` as ("internal", "max.connections"); None for any other key."""
    if not name.startswith(PREFIX):
        return None
    listener, dot, base = name.removeprefix(PREFIX).partition(".")
    return ListenerKey(listener, base) if dot and base else None


def listener_key(listener: str, base: str) -> str:
    return f"{PREFIX}{listener.lower()}.{base}"
