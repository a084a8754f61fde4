"""The reason why a connection ends. The values are labels of metrics."""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import Final


class CloseReason(StrEnum):
    """The first two are caused by the client or the network, all others by the broker."""

    CLIENT = "client"  # the client has closed its end
    CONNECTION_LOST = "connection-lost"  # the connection was reset or timed out
    HOST_LIMIT = "host-limit"  # max.connections.per.ip
    HOST_RATE = "host-rate"  # the connection rate quota of its address
    SOCKET_SETUP = "socket-setup"  # a socket option could not be set
    HANDSHAKE_FAILED = "handshake-failed"
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    HANDSHAKE_LIMIT = "handshake-limit"  # too many concurrent handshakes
    LOGIN_FAILED = "login-failed"
    LOGIN_TIMEOUT = "login-timeout"
    NO_LOGIN = "no-login"  # a request before the login, or after it expired
    IDLE = "idle"  # connections.max.idle.ms
    FRAME_SIZE = "frame-size"
    MALFORMED_REQUEST = "malformed-request"
    UNSUPPORTED_REQUEST = "unsupported-request"
    # A request with acks=0 failed, and has no response that reports it.
    UNACKNOWLEDGED_PRODUCE = "unacknowledged-produce"
    REQUEST_FAILED = "request-failed"  # a bug in a handler
    REQUEST_UNANSWERED = "request-forgotten"  # a bug: a request without a response
    UNEXPECTED_ERROR = "unexpected-error"  # a bug in the connection
    TRANSPORT_ERROR = "transport-error"  # an error of TLS, or of a file to send
    SHUTDOWN = "shutdown"


CLOSED_BY_CLIENT: Final = frozenset({CloseReason.CLIENT, CloseReason.CONNECTION_LOST})
HANDSHAKE_REASONS: Final = (CloseReason.HANDSHAKE_FAILED, CloseReason.HANDSHAKE_TIMEOUT, CloseReason.HANDSHAKE_LIMIT)
CONNECTION_LOST_ERRORS: Final = frozenset(
    {
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.EHOSTDOWN,
    }
)


def reason_of(error: OSError) -> CloseReason:
    """Return the reason for an error of a transport. OpenSSL's error numbers do not overlap with these."""
    return CloseReason.CONNECTION_LOST if error.errno in CONNECTION_LOST_ERRORS else CloseReason.TRANSPORT_ERROR
