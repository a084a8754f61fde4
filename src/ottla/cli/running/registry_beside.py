"""The schema registry beside what `ottla up` and `ottla demo` run: a guest, under the console's rules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

from ottla.cli.running.console_beside import RESTARTS_MAX
from ottla.cli.running.supervisor import Child, Supervisor
from ottla.cli.running.up_cluster import HOST, free_port, is_free

PORT = 8081
NAME = "registry"
NEEDED = ("msgspec", "uvicorn")
NO_REGISTRY = "No schema registry: pip install 'ottla[registry]' brings it."
NO_LOGIN = "No schema registry: it knows no login yet, and would be open to everybody on this machine."


class RegistryBeside:
    """The registry of one `ottla up`."""

    def __init__(self, port: int | None, say: Callable[[str], None]) -> None:
        self.port = port or (PORT if port is None and is_free(PORT) else free_port())
        self.say = say
        self.restarts = 0

    def __repr__(self) -> str:
        return f"<RegistryBeside {self.address}>"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def begin(self, supervisor: Supervisor, bootstrap: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "registry", "--bootstrap-server", bootstrap]
        command += ["--port", str(self.port)]

        def ended(code: int) -> None:
            if supervisor.is_ending:
                return
            self.restarts += 1
            if self.restarts > RESTARTS_MAX:
                self.say(f"The schema registry has ended with exit code {code}: everything else goes on without it.")
            else:
                supervisor.start(Child(NAME, command, ended))

        supervisor.start(Child(NAME, command, ended))


def registry_beside(
    port: int | None, say: Callable[[str], None], *, is_wanted: bool, is_secure: bool = False
) -> RegistryBeside | None:
    """None: nobody wants one, what it needs is not installed, or everybody could go past the brokers' logins."""
    if not is_wanted:
        return None
    if is_secure or any(find_spec(name) is None for name in NEEDED):
        say(NO_LOGIN if is_secure else NO_REGISTRY)
        return None
    return RegistryBeside(port, say)
