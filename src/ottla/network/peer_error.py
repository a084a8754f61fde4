"""What a peer tells of calls that failed, and what it needs of the poller."""

from __future__ import annotations

import errno
from typing import Any, Final, Protocol

from ottla.protocol.apis import ALL_APIS

REFUSALS: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


class PeerError(Exception):
    """A call that was not answered.

    is_refused: the other side refused, reset or closed the connection: most likely nobody runs there any more.
    is_timeout: no answer in time; the request may still be carried out.
    is_sent: the request may have reached the other side.
    """

    def __init__(
        self, reason: str, *, is_refused: bool = False, is_timeout: bool = False, is_sent: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_refused = is_refused
        self.is_timeout = is_timeout
        self.is_sent = is_sent


def unreachable(address: str, problem: OSError) -> PeerError:
    """No connection could be made."""
    reason = problem.strerror or problem
    return PeerError(f"cannot connect to {address}: {reason}", is_refused=problem.errno in REFUSALS)


class Rounds(Protocol):
    """The poller, as a peer sees it."""

    def watch(self, descriptor: int, watched: Any) -> None: ...

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...


def api_name(key: int) -> str:
    return ALL_APIS[key].name if key in ALL_APIS else f"API {key}"
