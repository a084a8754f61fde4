"""What a broker can do about a bad network: options of its sockets. Without any, everything is as the kernel has it."""

from __future__ import annotations

import contextlib
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
CALM_SECONDS: Final = 60.0  # so long a connection must have taken all at once before it is as others again


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Of one socket, once it is connected."""

    congestion_control: str = ""
    local_congestion_control: str = ""  # for both ends on this machine, unless there is one for all
    paced_send_buffer_bytes: int = -1  # for those whose packets leave by a timer; all others are left to the kernel
    retransmission_ms_min: int = 0
    user_timeout_ms: int = 0
    unsent_bytes_max: int = -1

    @property
    def is_paced(self) -> bool:
        """Then it is for those alone whose sockets are full: see Pace."""
        return self.congestion_control.encode().startswith(PACED)

    def pace(self, sock: socket.socket) -> Pace | None:
        return Pace(sock, self.congestion_control) if self.is_paced else None

    def apply(self, sock: socket.socket) -> None:
        """OSError: the kernel has no such thing; `link_problem` says so before the first connection."""
        chosen = self.congestion_control
        if not chosen and self.local_congestion_control and _stays_here(sock):
            chosen = self.local_congestion_control
        if chosen and not self.is_paced:
            _control_congestion(sock, chosen.encode())
        if self.paced_send_buffer_bytes > 0 and (self.is_paced or _is_paced(sock)):
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


class Pace:
    """Of one socket: what leaves by a timer is for those who read more than their socket holds.

    `bbr` keeps up with a line that loses packets. Whoever gets little at a time needs no speed, and waits for its
    timers and for the 200 ms in which it sends next to nothing, now and then, to see how short the line is: such a
    consumer stood still for twice as long as without (docs/network.md). So everybody has what the machine is set up
    with until the socket is full.
    """

    def __init__(self, sock: socket.socket, paced: str) -> None:
        self._socket = sock
        self._paced = paced.encode()
        self._usual = _congestion_control(sock)
        self._full_at = 0.0
        self.is_paced = False

    def on_full(self, now: float) -> None:
        self._full_at = now
        self._set(True)

    def on_sweep(self, now: float) -> None:
        if now - self._full_at > CALM_SECONDS:
            self._set(False)

    def _set(self, is_paced: bool) -> None:
        if is_paced != self.is_paced:
            self.is_paced = is_paced
            with contextlib.suppress(OSError):  # it is being closed
                _control_congestion(self._socket, self._paced if is_paced else self._usual)

    def __repr__(self) -> str:
        return f"<Pace {'paced' if self.is_paced else 'as usual'}>"


def local_congestion_control() -> str:
    """What is cheaper than the machine's own choice from one process of it to another; empty if nothing is.

    There is no line that could be flooded, and a timer for each packet costs a part of what it takes to send it.
    """
    with socket.socket() as probe:
        is_paced = _is_paced(probe)
    return UNPACED if is_paced and link_problem(LinkOptions(congestion_control=UNPACED)) is None else ""


def _is_paced(sock: socket.socket) -> bool:
    return _congestion_control(sock).startswith(PACED)


def _congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES_MAX).rstrip(b"\0")


def _control_congestion(sock: socket.socket, name: bytes) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


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
            if options.congestion_control:
                _control_congestion(probe, options.congestion_control.encode())
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
