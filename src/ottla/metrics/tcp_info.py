"""The kernel's statistics of one TCP connection (TCP_INFO): retransmissions, round-trip time, unsent bytes.

They are read only on request: a reading takes about two microseconds.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

# struct tcp_info of linux/tcp.h, which only grows at its end: unacked, last_ack_recv, rtt, total_retrans,
# notsent_bytes (Linux 4.6) and data_segs_out.
_FIELDS: Final = struct.Struct("=24xI28xI8xI28xI40xI8xI")


class TcpInfo(NamedTuple):
    """One connection, as seen from this side."""

    unacknowledged_segments: int
    silent_ms: int  # since the last acknowledgement from the other side
    round_trip_us: int
    retransmitted_segments: int
    unsent_bytes: int
    sent_segments: int  # data segments, retransmissions included

    @property
    def retransmitted_share(self) -> float:
        """The share of retransmissions, as if a hundred more segments had arrived:

        one loss of two does not mean a bad link.
        """
        return self.retransmitted_segments / (self.sent_segments + 100)

    @property
    def retransmission_wait_ms(self) -> int:
        """The age of the oldest unacknowledged data; 0 without any."""
        return self.silent_ms if self.unacknowledged_segments else 0


def parse_tcp_info(data: bytes) -> TcpInfo | None:
    """Parse the struct; None if the kernel returns a shorter one."""
    return TcpInfo._make(_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else None


def read_tcp_info(descriptor: int) -> TcpInfo | None:
    """Read the statistics of a socket; None if it is not TCP, or was just closed."""
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        return parse_tcp_info(borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size))
    except OSError:
        return None
    finally:
        borrowed.detach()
