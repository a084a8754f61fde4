"""One row of the table of APIs: everything that the broker must know about one, beside its messages and versions.

The dispatcher, forwarding and ApiVersions derive what they do from these rows (handlers/table.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import Error

if TYPE_CHECKING:
    from ottla.broker.context import Context

Handler = Callable[[Any, "Context"], Any]
"""Takes a request; returns its response, a coroutine that comes to it, or the responder (responder.py)."""

FrameHandler = Callable[[memoryview, int, "Context"], bool]
"""Takes a request as it came, with the position of its body; False: it has to be decoded and handled as all are."""

Refuse = Callable[[Any, Error, str | None, int], Any]
"""Makes the response that says one error, with a message, about everything in a request of some version."""


class ServedApi(NamedTuple):
    """The versions are those of protocol/apis.py."""

    key: int
    handle: Handler
    handle_long: Handler | None = None  # the same for a request of thousands of items: a coroutine that works in slices
    handle_frame: FrameHandler | None = None  # for what need not be decoded, because it is so like the one before
    overlaps: bool = False  # with others on the same connection: only Produce and Fetch, as in Kafka
    refuse: Refuse | None = None  # only the controller can do this: the answer when it cannot be asked
    is_passed_on: bool = False  # as a whole, by a broker that is not the controller; else by its own handler, in part
    is_between_brokers: bool = False  # served in a cluster only, and told to nobody but its brokers
    is_eager: bool = False  # its coroutine mostly need not wait: it is begun at once (base/eager.py)
    is_before_login: bool = False  # may be asked on a connection that has not logged in yet


def controllers(key: int, handle: Handler, refuse: Refuse) -> ServedApi:
    """An API that only the controller can answer: other brokers pass it on (KIP-590)."""
    return ServedApi(key, handle, refuse=refuse, is_passed_on=True)
