"""The console beside what `ottla up` and `ottla demo` run.

Rules:
1. It is a guest: started when the brokers serve, so that it costs them no time, and nothing ends because of it.
2. Its usual port may be somebody else's: then it takes another one, and the banner tells which.
3. One that crashes is started again, a few times; then everything goes on without it, and a line says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.running.supervisor import Child, Supervisor
from ottla.cli.running.up_cluster import HOST, free_port, is_free

PORT = 8080
OTHER_PORTS = (8082, 8083, 8084, 8085, 8086, 8087, 8088, 8089)  # 8081 is a registry's
FOLDER = "console"
NAME = "console"
NEEDED = ("starlette", "uvicorn", "msgspec")
RESTARTS_MAX = 3
NO_CONSOLE = "No console: pip install 'ottla[console]' brings it."


class ConsoleBeside:
    """The console of one `ottla up`."""

    def __init__(self, data: Path, port: int | None, say: Callable[[str], None]) -> None:
        self.data = data / FOLDER
        self.port = choose_port(port)
        self.say = say
        self.restarts = 0

    def __repr__(self) -> str:
        return f"<ConsoleBeside {self.address}>"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def begin(
        self,
        supervisor: Supervisor,
        bootstrap: str,
        config: Path | None = None,
        registry: str | None = None,
        metrics: str | None = None,
    ) -> None:
        command = console_command(bootstrap, self.data, self.port, config)
        command += ["--schema-registry", registry] if registry is not None else []
        command += ["--metrics-url", metrics] if metrics else []

        def ended(code: int) -> None:
            if supervisor.is_ending:
                return
            self.restarts += 1
            if self.restarts > RESTARTS_MAX:
                self.say(f"The console has ended with exit code {code}: everything else goes on without it.")
            else:
                supervisor.start(Child(NAME, command, ended))

        supervisor.start(Child(NAME, command, ended))


def console_beside(
    data: Path, port: int | None, say: Callable[[str], None], *, is_wanted: bool
) -> ConsoleBeside | None:
    """None: nobody wants one, or what it needs is not installed."""
    if not is_wanted:
        return None
    if any(find_spec(name) is None for name in NEEDED):
        say(NO_CONSOLE)
        return None
    return ConsoleBeside(data, port, say)


def console_command(bootstrap: str, data: Path, port: int, config: Path | None) -> list[str]:
    words = [sys.executable, "-m", "ottla.cli.main", "console", "--bootstrap-server", bootstrap]
    words += ["--data", str(data), "--port", str(port)]
    if config is None:
        return words
    # What a login guards must not be open to everybody on this machine: whoever uses this console signs in.
    return [*words, "--command-config", str(config), "--sign-in"]


def choose_port(wanted: int | None) -> int:
    """What was asked for; else the usual one, or the next that is free."""
    if wanted:
        return wanted
    ports = (port for port in (PORT, *OTHER_PORTS) if wanted is None and is_free(port))
    return next(ports, None) or free_port()
