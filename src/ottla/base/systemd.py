"""Notifications to systemd, or to a compatible supervisor, by the sd_notify protocol."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

logger = logging.getLogger(__name__)

VARIABLE: Final = "NOTIFY_SOCKET"
# Ours: the id of a broker whose replicas are all in sync. `ottla broker --processes` waits for it between two restarts.
IN_SYNC: Final = "X_OTTLA_IN_SYNC"
SECONDS_MAX: Final = 0.5


def has_notify_socket() -> bool:
    """Whether a supervisor listens for notifications."""
    return bool(os.environ.get(VARIABLE))


def notify_systemd(state: str) -> bool:
    """Send a state to systemd (units of Type=notify); does nothing without systemd. Returns whether it was sent."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.settimeout(SECONDS_MAX)  # the supervisor may not be reading
            notifier.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        logger.warning("cannot notify systemd of %s: %s", state, error.strerror or error)
        return False
    return True
