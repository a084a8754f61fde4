"""Child processes that never outlive the benchmark: each leads a process group, which is stopped as a whole."""

import ctypes
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def start_child(
    command: list[str], *, cwd: Path, output: IO[bytes] | None = None, pass_fds: list[int] | None = None
) -> subprocess.Popen[bytes]:
    """In its own group Ctrl-C does not reach it: the benchmark stops its children in order."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        pass_fds=pass_fds or [],
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  # the benchmark itself has no threads
    )


def stop_child(process: subprocess.Popen[bytes], seconds_max: float) -> None:
    """Terminate the process, kill it after a timeout, and then the rest of its group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with suppress(ProcessLookupError):  # the group has already ended
        os.killpg(process.pid, signal.SIGKILL)


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # also when the benchmark is killed with -9
