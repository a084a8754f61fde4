"""What a peer tells of calls that failed."""

from __future__ import annotations

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


def api_name(key: int) -> str:
    return ALL_APIS[key].name if key in ALL_APIS else f"API {key}"
