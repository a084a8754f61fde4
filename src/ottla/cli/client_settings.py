"""Properties of clients as people give them: a file (--command-config), single ones on the command line."""

from __future__ import annotations

import os
from argparse import Namespace

from ottla.base.properties import PropertiesError, read_properties
from ottla.base.value_references import ProviderError, fill_in
from ottla.cli.arguments import bootstrap_of
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.client.client import TIMEOUT_MS, Client
from ottla.client.errors import BadPropertyError
from ottla.client.opening import open_client

FILE_BYTES_MAX = 1024 * 1024
COMMAND_CONFIG_VARIABLE = "OTTLA_COMMAND_CONFIG"
SECRET_WORDS = ("password", "secret", "jaas")


def load_properties(path: str) -> dict[str, str]:
    """The properties in a file; warns if others can read the passwords in it."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as problem:
        raise ToolError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ToolError(f"{path} is larger than {FILE_BYTES_MAX} bytes: is it a properties file?")
    try:
        properties = read_properties(data.decode("utf-8", "replace"))
    except PropertiesError as problem:
        raise ToolError(f"{path}, line {problem.line}: {problem.cause}") from None
    try:
        properties = {key: fill_in(value, os.environ) for key, value in properties.items()}
    except ProviderError as problem:
        raise ToolError(f"{path}: {problem}") from None
    if mode & 0o077 and any(word in key for key in properties for word in SECRET_WORDS):
        warn(f"warning: {path} holds a password and others can read it: chmod 600 {path}")
    return properties


def command_properties(path: str | None) -> dict[str, str]:
    """The properties in the file that --command-config names, or else OTTLA_COMMAND_CONFIG; none if neither does."""
    path = path or os.environ.get(COMMAND_CONFIG_VARIABLE)
    return load_properties(path) if path else {}


def make_client(bootstrap: str, properties: dict[str, str] | None = None, client_id: str = "ottla") -> Client:
    """A wire client as the properties want it."""
    wanted = properties or {}
    timeout_ms = wanted.get("default.api.timeout.ms") or wanted.get("request.timeout.ms") or ""
    try:
        return open_client(
            bootstrap, wanted, client_id, timeout_ms=int(timeout_ms) if timeout_ms.isdecimal() else TIMEOUT_MS
        )
    except BadPropertyError as problem:
        raise UsageError(str(problem)) from None


def client_of(options: Namespace) -> Client:
    """The wire client that the options of add_connection() ask for."""
    config = getattr(options, "command_config", None)
    return make_client(bootstrap_of(options), command_properties(config))


def run_action(options: Namespace) -> int:
    """What the chosen sub-command does (`action`), with a client for it."""
    with client_of(options) as client:
        code: int = options.action(client, options)
        return code


def client_of_file(bootstrap: str, config: str | None, client_id: str = "adminclient-1") -> Client:
    """The wire client of one of Kafka's tools, with the properties in `config`."""
    return make_client(bootstrap, command_properties(config), client_id)
