"""What came and went through one listener, as plain numbers; open connections keep their own until they close."""

from __future__ import annotations


class ListenerTraffic:
    """Sums since the broker started."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.refused = 0  # over max.connections.per.ip
        self.expired = 0  # closed by us after connections.max.idle.ms
        self.failed_handshakes = 0  # of TLS
        self.logins = 0
        self.failed_logins = 0
        self.repeated_logins = 0  # on connections that had one (KIP-368)
        self.failed_repeated_logins = 0
        self.received_bytes = 0  # of closed connections
        self.sent_bytes = 0

    @property
    def open(self) -> int:
        return self.opened - self.closed

    def __repr__(self) -> str:
        return f"<ListenerTraffic {self.open} open of {self.opened}>"
