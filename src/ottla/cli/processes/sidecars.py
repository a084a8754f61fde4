"""The web console and the schema registry that `ottla up` and `ottla demo` run next to their brokers.

Rules:
1. A sidecar starts when the brokers are ready, so it does not delay them. Its end stops nothing else.
2. If its default port is in use it takes another, and the banner shows that one.
3. After a crash it is restarted a few times; then everything else continues, and a line reports that.
4. On a terminal the console's token is created here, so that the banner can contain the link, and passed in an
   environment variable. Otherwise lines may end up in logs: the console creates the token and names its file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ottla.base.passwords import new_link_token
from ottla.cli.ports import free_port, is_free
from ottla.cli.processes.supervisor import Child, Supervisor
from ottla.cli.processes.up_cluster import HOST
from ottla.cli.terminal import is_terminal

CONSOLE_PORT = 8080
CONSOLE_FALLBACK_PORTS = (8082, 8083, 8084, 8085, 8086, 8087, 8088, 8089)  # 8081 is the registry's
CONSOLE_FOLDER = "console"
CONSOLE_NAME = "console"
CONSOLE_MODULES = ("starlette", "uvicorn", "msgspec")
RESTARTS_MAX = 3
TOKEN_VARIABLE = "OTTLA_CONSOLE_TOKEN"  # noqa: S105 (a name)
CONSOLE_NOT_INSTALLED = "No console: pip install 'ottla[console]' brings it."


class ConsoleSidecar:
    """The console of one `ottla up`."""

    def __init__(self, data: Path, port: int | None, say: Callable[[str], None], *, has_token: bool) -> None:
        self.data = data / CONSOLE_FOLDER
        self.port = choose_port(port)
        self.say = say
        self.restarts = 0
        self.token = new_link_token() if has_token else None

    def __repr__(self) -> str:
        return f"<ConsoleSidecar {self.address}>"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def link(self) -> str:
        """The URL for the user, with the token."""
        return f"{self.address}/?token={self.token}" if self.token is not None else self.address

    def start(
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
        environment = {TOKEN_VARIABLE: self.token} if self.token is not None else None

        def ended(code: int) -> None:
            if supervisor.is_stopping:
                return
            self.restarts += 1
            if self.restarts > RESTARTS_MAX:
                self.say(f"The console ended with exit code {code}: everything else continues without it.")
            else:
                supervisor.start(Child(CONSOLE_NAME, command, ended, environment=environment))

        supervisor.start(Child(CONSOLE_NAME, command, ended, environment=environment))


def make_console_sidecar(
    data: Path, port: int | None, say: Callable[[str], None], *, is_enabled: bool, needs_sign_in: bool
) -> ConsoleSidecar | None:
    """The console, or None if it is disabled or its packages are missing."""
    if not is_enabled:
        return None
    if any(find_spec(name) is None for name in CONSOLE_MODULES):
        say(CONSOLE_NOT_INSTALLED)
        return None
    return ConsoleSidecar(data, port, say, has_token=not needs_sign_in and is_terminal(sys.stdout))


def console_command(bootstrap: str, data: Path, port: int, config: Path | None) -> list[str]:
    words = [sys.executable, "-m", "ottla.cli.main", "console", "--bootstrap-server", bootstrap]
    words += ["--data", str(data), "--port", str(port)]
    if config is None:
        return words
    # A console with a login's rights must not be open to every user of this machine.
    return [*words, "--command-config", str(config), "--sign-in"]


def choose_port(requested: int | None) -> int:
    """The requested port, else the default one, else the next free one."""
    if requested:
        return requested
    ports = (port for port in (CONSOLE_PORT, *CONSOLE_FALLBACK_PORTS) if requested is None and is_free(port))
    return next(ports, None) or free_port()


# ---- the schema registry
REGISTRY_PORT = 8081
REGISTRY_NAME = "registry"
REGISTRY_MODULES = ("msgspec", "starlette", "uvicorn")
REGISTRY_NOT_INSTALLED = "No schema registry: pip install 'ottla[registry]' brings it."
REGISTRY_HAS_NO_LOGIN = "No schema registry: it would bypass the brokers' login for every user of this machine."


class RegistrySidecar:
    """The schema registry of one `ottla up`."""

    def __init__(self, port: int | None, say: Callable[[str], None]) -> None:
        self.port = port or (REGISTRY_PORT if port is None and is_free(REGISTRY_PORT) else free_port())
        self.say = say
        self.restarts = 0

    def __repr__(self) -> str:
        return f"<RegistrySidecar {self.address}>"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, supervisor: Supervisor, bootstrap: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "registry", "--bootstrap-server", bootstrap]
        command += ["--port", str(self.port)]

        def ended(code: int) -> None:
            if supervisor.is_stopping:
                return
            self.restarts += 1
            if self.restarts > RESTARTS_MAX:
                self.say(f"The schema registry ended with exit code {code}: everything else continues without it.")
            else:
                supervisor.start(Child(REGISTRY_NAME, command, ended))

        supervisor.start(Child(REGISTRY_NAME, command, ended))


def make_registry_sidecar(
    port: int | None, say: Callable[[str], None], *, is_enabled: bool, is_secure: bool = False
) -> RegistrySidecar | None:
    """The registry, or None if it is disabled, its packages are missing, or it would bypass the brokers' logins."""
    if not is_enabled:
        return None
    if is_secure or any(find_spec(name) is None for name in REGISTRY_MODULES):
        say(REGISTRY_HAS_NO_LOGIN if is_secure else REGISTRY_NOT_INSTALLED)
        return None
    return RegistrySidecar(port, say)
