"""Socket options for bad networks. Without any, the kernel's defaults apply."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TCP_RTO_MIN_US: Final = 45  # Linux 6.15; Python has no constant for it yet
TCP_THIN_LINEAR_TIMEOUTS: Final = 16
AVAILABLE_ALGORITHMS: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
NAME_BYTES_MAX: Final = 16
PACED: Final = b"bbr"  # and its variants: packets are paced by a timer, to avoid congestion of routers
UNPACED: Final = "reno"  # available in every kernel, without privileges
PACING_IDLE_SECONDS: Final = 60.0  # after this time without a full socket buffer, pacing ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Options of one connected socket."""

    congestion_control: str = ""
    local_congestion_control: str = ""  # for connections within this machine, unless congestion_control is set
    paced_send_buffer_bytes: int = -1  # for sockets with pacing; others keep the kernel's default
    retransmission_ms_min: int = 0
    user_timeout_ms: int = 0
    unsent_bytes_max: int = -1

    @property
    def is_paced(self) -> bool:
        """Whether pacing applies, which is only used for sockets with a full buffer: see Pace."""
        return self.congestion_control.encode().startswith(PACED)

    def pace(self, sock: socket.socket) -> PacingControl | None:
        return PacingControl(sock, self.congestion_control) if self.is_paced else None

    def apply(self, sock: socket.socket) -> None:
        """Apply the options. Raises OSError if the kernel lacks one; `socket_options_problem` checks that before."""
        chosen = self.congestion_control
        if not chosen and self.local_congestion_control and _is_local(sock):
            chosen = self.local_congestion_control
        if chosen and not self.is_paced:
            _set_congestion_control(sock, chosen.encode())
        if self.paced_send_buffer_bytes > 0 and (self.is_paced or _is_paced(sock)):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.paced_send_buffer_bytes)
        if self.retransmission_ms_min > 0:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US, self.retransmission_ms_min * 1000)
            # Do not double the timeout for repeated losses while few packets are in flight.
            sock.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
        if self.user_timeout_ms > 0:
            set_silence_timeout(sock, self.user_timeout_ms)
        if self.unsent_bytes_max >= 0:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self.unsent_bytes_max)


NO_OPTIONS: Final = SocketOptions()


class PacingControl:
    """Switches one socket to a paced congestion control while its buffer is full.

    `bbr` keeps its rate on lossy networks. A consumer that reads little at a time has no benefit, and is slowed down by
    its timers and its periodic 200 ms of draining: such a consumer waited twice as long (docs/network.md). Every socket
    therefore uses the default of the machine until its buffer is full.
    """

    def __init__(self, sock: socket.socket, paced: str) -> None:
        self._socket = sock
        self._paced = paced.encode()
        self._default_algorithm = _congestion_control(sock)
        self._full_at = 0.0
        self.is_paced = False

    def on_socket_full(self, now: float) -> None:
        self._full_at = now
        self._set(True)

    def on_sweep(self, now: float) -> None:
        if now - self._full_at > PACING_IDLE_SECONDS:
            self._set(False)

    def _set(self, is_paced: bool) -> None:
        if is_paced != self.is_paced:
            self.is_paced = is_paced
            with contextlib.suppress(OSError):  # the socket is being closed
                _set_congestion_control(self._socket, self._paced if is_paced else self._default_algorithm)

    def __repr__(self) -> str:
        return f"<PacingControl {'paced' if self.is_paced else 'as usual'}>"


def local_congestion_control() -> str:
    """Return a cheaper congestion control than the machine's default for connections within the machine; empty if there
    is none.

    No network can be congested there, and a timer for each packet is expensive.
    """
    with socket.socket() as probe:
        is_paced = _is_paced(probe)
    return UNPACED if is_paced and socket_options_problem(SocketOptions(congestion_control=UNPACED)) is None else ""


def _is_paced(sock: socket.socket) -> bool:
    return _congestion_control(sock).startswith(PACED)


def _congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES_MAX).rstrip(b"\0")


def _set_congestion_control(sock: socket.socket, name: bytes) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def _is_local(sock: socket.socket) -> bool:
    """Return whether both ends have the same address; a closed socket has none."""
    try:
        here: str = sock.getsockname()[0]
        there: str = sock.getpeername()[0]
    except OSError:
        return False
    return here == there


def set_silence_timeout(sock: socket.socket, silent_ms_max: int) -> None:
    """Set keepalive and timeouts: the connection is lost after this time without a packet from the peer."""
    seconds = silent_ms_max / 1000
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds * 0.4)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds * 0.2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_ms_max)


def socket_options_problem(options: SocketOptions) -> str | None:
    """Return the reason why this machine does not support these options, in one sentence, or None."""
    with socket.socket() as probe:
        try:
            if options.congestion_control:
                _set_congestion_control(probe, options.congestion_control.encode())
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
            f"ottla.socket.congestion.control={name} needs root here: add it to the kernel's parameter "
            "net.ipv4.tcp_allowed_congestion_control"
        )
    offered = ", ".join(AVAILABLE_ALGORITHMS.read_text().split()) if AVAILABLE_ALGORITHMS.exists() else "none by name"
    is_missing = isinstance(problem, OSError) and problem.errno == errno.ENOENT
    cure = f", or load it: modprobe tcp_{name}" if is_missing and name.isidentifier() else ""
    return f"ottla.socket.congestion.control={name} is not available in this kernel: {offered}{cure}"
