"""What the kernel knows about one TCP connection (TCP_INFO): what was sent again, how long the way is, what waits.

Read when somebody asks, and never otherwise: a reading takes about two microseconds.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

# struct tcp_info of linux/tcp.h, which only ever grows at its end: unacked, last_ack_recv, rtt, total_retrans,
# notsent_bytes (Linux 4.6) and data_segs_out.
_FIELDS: Final = struct.Struct("=24xI28xI8xI28xI40xI8xI")


class TcpInfo(NamedTuple):
    """One connection, as this side sees it."""

    unacknowledged_segments: int
    silent_ms: int  # since the other side has acknowledged anything
    round_trip_us: int
    retransmitted_segments: int
    unsent_bytes: int
    sent_segments: int  # with data, those that were sent again among them

    @property
    def retransmitted_share(self) -> float:
        """As if a hundred more had gone well: one lost packet of two does not make a bad link."""
        return self.retransmitted_segments / (self.sent_segments + 100)

    @property
    def waits_ms(self) -> int:
        """For how long something that was sent has not been acknowledged; 0 if there is no such thing."""
        return self.silent_ms if self.unacknowledged_segments else 0


def parse_tcp_info(data: bytes) -> TcpInfo | None:
    """None: a kernel that tells less."""
    return TcpInfo._make(_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else None


def read_tcp_info(descriptor: int) -> TcpInfo | None:
    """None: no TCP, or it has just ended."""
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        return parse_tcp_info(borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size))
    except OSError:
        return None
    finally:
        borrowed.detach()
