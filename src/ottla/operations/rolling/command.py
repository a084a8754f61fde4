"""The command that restarts a broker: its words for one broker (pure), and running it.

`{id}`, `{host}`, `{port}` and `{rack}` stand for what the cluster tells about the broker; `{{` and `}}` are braces.
What is filled in is quoted for the shell: a broker could have called itself anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from typing import Final

from ottla.operations.errors import WrongInputError
from ottla.operations.rolling.facts import BrokerSeen
from ottla.operations.rolling.roll import Command

_WORDS: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]*)\}")
_NAMES: Final = ("id", "host", "port", "rack")
_LAST_BYTES: Final = 4096
_GRACE_SECONDS: Final = 5.0


def command_for(template: str, broker: BrokerSeen) -> str:
    """The command line for one broker. Raises WrongInputError for a place-holder that nobody knows."""
    values = {"id": str(broker.id), "host": broker.host, "port": str(broker.port), "rack": broker.rack or ""}

    def word(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in _NAMES)
            raise WrongInputError(f"--command: {match[0]} is none of {known}; write {{{{ and }}}} for braces")
        return shlex.quote(values[match[1]])

    return _WORDS.sub(word, template)


def names_a_broker(template: str) -> bool:
    """Whether the command differs from broker to broker."""
    return any(match[1] in _NAMES and match[1] != "rack" for match in _WORDS.finditer(template))


class RunningCommand:
    """A shell with the command, in a process group of its own; what it says goes to a file, so that nobody is held up
    by whatever it leaves behind.
    """

    def __init__(self, line: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(  # noqa: S603 (the operator's own words)
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def look(self) -> Command:
        code = self._process.poll()
        return Command(code, self._last_words() if code else "")

    def end(self) -> bool:
        """Whatever still runs of it, and let go of its output; whether it ran."""
        is_running = self._process.poll() is None
        if is_running:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        self._output.close()
        return is_running

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _last_words(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _LAST_BYTES))
        lines = self._output.read().decode("utf-8", "backslashreplace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-400:] if size else ""

    def __repr__(self) -> str:
        return f"<RunningCommand {self._process.pid} code={self._process.poll()}>"
