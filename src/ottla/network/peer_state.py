"""Where an outgoing connection stands, and where it may go from there."""

from __future__ import annotations

from enum import Enum


class PeerState(Enum):
    IDLE = "not connected"
    CONNECTING = "connecting"
    GREETING = "asking for versions"
    READY = "ready"
    CLOSED = "closed"


LEADS_TO = {
    PeerState.IDLE: {PeerState.CONNECTING, PeerState.CLOSED},
    PeerState.CONNECTING: {PeerState.GREETING, PeerState.IDLE, PeerState.CLOSED},
    PeerState.GREETING: {PeerState.READY, PeerState.IDLE, PeerState.CLOSED},
    PeerState.READY: {PeerState.IDLE, PeerState.CLOSED},
    PeerState.CLOSED: {PeerState.CLOSED},
}
