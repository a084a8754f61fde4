"""ServedApi: one row of the table of APIs in handlers/table.py.

The dispatcher, forwarding and ApiVersions derive their behaviour from these rows. The
version of a request is checked in dispatch.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import Error

if TYPE_CHECKING:
    from ottla.broker.context import Context

Handler = Callable[[Any, "Context"], Any]
"""Takes a request; returns the response, a coroutine of it, or the responder (responder.py)."""

FrameHandler = Callable[[memoryview, int, "Context"], bool]
"""Takes an undecoded request and the position of its body; False: the request must be decoded and handled normally."""

MakeErrorResponse = Callable[[Any, Error, str | None, int], Any]
"""Builds the response that reports one error, with a message, for every item of a request."""


class ServedApi(NamedTuple):
    """How one API is served. protocol/apis.py defines the versions."""

    key: int
    handle: Handler
    handle_long: Handler | None = None  # for requests with thousands of items: a coroutine that works in slices
    handle_undecoded: FrameHandler | None = (
        None  # handles requests that equal the previous one but for their values, without decoding
    )
    overlaps: bool = False  # overlaps with others on the same connection: only Produce and Fetch, as in Kafka
    make_error_response: MakeErrorResponse | None = (
        None  # controller APIs: the response when no controller can be reached
    )
    is_forwarded: bool = (
        False  # a broker that is not the controller forwards the whole request; otherwise its handler forwards a part
    )
    is_inter_broker: bool = False  # served in a cluster only, and advertised to brokers only
    starts_eagerly: bool = False  # its coroutine mostly need not wait: it starts at once (base/eager_tasks.py)
    is_allowed_before_login: bool = False  # allowed on a connection that is not authenticated yet


def controller_api(key: int, handle: Handler, refuse: MakeErrorResponse) -> ServedApi:
    """Return an API of the controller: other brokers forward it (KIP-590)."""
    return ServedApi(key, handle, make_error_response=refuse, is_forwarded=True)
