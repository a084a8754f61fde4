"""Servers for tests end with the test run, also when it is killed."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading

SET_PARENT_DEATH_SIGNAL = 1


def is_main_thread() -> bool:
    """The kernel takes the thread that starts a process for its parent: one that ends would take the server with it."""
    return threading.current_thread() is threading.main_thread()


def die_with_parent() -> None:
    """Also when the test run is killed, and also when the server is paused then (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
