"""What a broker can do about a bad network: options of its sockets. Without any, everything is as the kernel has it."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TCP_RTO_MIN_US: Final = 45  # Linux 6.15; Python has no name for it yet
TCP_THIN_LINEAR_TIMEOUTS: Final = 16
OFFERED: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
NAME_BYTES_MAX: Final = 16
PACED: Final = b"bbr"  # and what is made from it: packets leave by a timer, so that no line in between is flooded
UNPACED: Final = "reno"  # every kernel has it, and everybody may use it


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Of one socket, once it is connected."""

    congestion_control: str = ""
    local_congestion_control: str = ""  # for both ends on this machine, unless there is one for all
    paced_send_buffer_bytes: int = -1  # for those whose packets leave by a timer; all others are left to the kernel
    retransmission_ms_min: int = 0
    user_timeout_ms: int = 0
    unsent_bytes_max: int = -1

    def apply(self, sock: socket.socket) -> None:
        """OSError: the kernel has no such thing; `link_problem` says so before the first connection."""
        chosen = self.congestion_control
        if not chosen and self.local_congestion_control and _stays_here(sock):
            chosen = self.local_congestion_control
        if chosen:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, chosen.encode())
        if self.paced_send_buffer_bytes > 0 and _is_paced(sock):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.paced_send_buffer_bytes)
        if self.retransmission_ms_min > 0:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US, self.retransmission_ms_min * 1000)
            # What is lost again does not wait twice as long each time, as long as little is on its way.
            sock.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
        if self.user_timeout_ms > 0:
            end_silence(sock, self.user_timeout_ms)
        if self.unsent_bytes_max >= 0:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self.unsent_bytes_max)


NO_OPTIONS: Final = LinkOptions()


def local_congestion_control() -> str:
    """What is cheaper than the machine's own choice from one process of it to another; empty if nothing is.

    There is no line that could be flooded, and a timer for each packet costs a part of what it takes to send it.
    """
    with socket.socket() as probe:
        is_paced = _is_paced(probe)
    return UNPACED if is_paced and link_problem(LinkOptions(congestion_control=UNPACED)) is None else ""


def _is_paced(sock: socket.socket) -> bool:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES_MAX).startswith(PACED)


def _stays_here(sock: socket.socket) -> bool:
    """Whether the other end has the same address; one that is gone already has none."""
    try:
        here: str = sock.getsockname()[0]
        there: str = sock.getpeername()[0]
    except OSError:
        return False
    return here == there


def end_silence(sock: socket.socket, silent_ms_max: int) -> None:
    """Without a packet from the other side for so long the connection is lost, also while nobody waits for anything."""
    seconds = silent_ms_max / 1000
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds * 0.4)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds * 0.2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_ms_max)


def link_problem(options: LinkOptions) -> str | None:
    """Why this machine cannot do that, in one sentence."""
    with socket.socket() as probe:
        try:
            LinkOptions(congestion_control=options.congestion_control).apply(probe)
        except (OSError, ValueError) as problem:
            return _congestion_problem(options.congestion_control, problem)
        try:
            options.apply(probe)
        except OSError as problem:
            return (
                f"ottla.socket.retransmission.timeout.min.ms={options.retransmission_ms_min} is not possible here: "
                f"the kernel must be Linux 6.15 or newer ({problem.strerror})"
            )
    return None


def _congestion_problem(name: str, problem: Exception) -> str:
    if isinstance(problem, PermissionError):
        return (
            f"ottla.socket.congestion.control={name} is only for root here: add it to the kernel's parameter "
            "net.ipv4.tcp_allowed_congestion_control"
        )
    offered = ", ".join(OFFERED.read_text().split()) if OFFERED.exists() else "none by name"
    is_missing = isinstance(problem, OSError) and problem.errno == errno.ENOENT
    cure = f", or load it: modprobe tcp_{name}" if is_missing and name.isidentifier() else ""
    return f"ottla.socket.congestion.control={name} is not what this kernel offers: {offered}{cure}"
