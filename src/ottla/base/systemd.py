"""Telling systemd, or whoever stands in for it, how a process is doing: the protocol of sd_notify."""

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


def is_listening() -> bool:
    """Whether anybody wants to be told."""
    return bool(os.environ.get(VARIABLE))


def tell_systemd(state: str) -> bool:
    """For units of Type=notify; without systemd this does nothing. Whether it was taken."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.settimeout(SECONDS_MAX)  # whoever listens may stand still
            notifier.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        logger.warning("cannot tell systemd %s: %s", state, error.strerror or error)
        return False
    return True
