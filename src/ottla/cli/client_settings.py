"""Client properties from a file (--command-config) and from the command line."""

from __future__ import annotations

import os
from argparse import Namespace

from ottla.base.config_provider import ProviderError, resolve_references
from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.arguments import bootstrap_of
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.client.client import TIMEOUT_MS, Client, open_client
from ottla.client.errors import BadPropertyError

FILE_BYTES_MAX = 1024 * 1024
COMMAND_CONFIG_VARIABLE = "OTTLA_COMMAND_CONFIG"
SECRET_WORDS = ("password", "secret", "jaas", "passphrase", "keystore.key", "key.pem")


def load_properties(path: str) -> dict[str, str]:
    """Read the properties in a file; warn if other users can read the passwords in it."""
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
        properties = {key: resolve_references(value, os.environ) for key, value in properties.items()}
    except ProviderError as problem:
        raise ToolError(f"{path}: {problem}") from None
    if mode & 0o077 and any(word in key for key in properties for word in SECRET_WORDS):
        warn(f"warning: {path} contains a password and is readable by other users: chmod 600 {path}")
    return properties


def command_properties(path: str | None) -> dict[str, str]:
    """The properties in the file of --command-config or OTTLA_COMMAND_CONFIG; empty without a file."""
    path = path or os.environ.get(COMMAND_CONFIG_VARIABLE)
    return load_properties(path) if path else {}


def make_client(bootstrap: str, properties: dict[str, str] | None = None, client_id: str = "ottla") -> Client:
    """Create a wire client from client properties."""
    wanted = properties or {}
    timeout_ms = wanted.get("default.api.timeout.ms") or wanted.get("request.timeout.ms") or ""
    try:
        return open_client(
            bootstrap, wanted, client_id, timeout_ms=int(timeout_ms) if timeout_ms.isdecimal() else TIMEOUT_MS
        )
    except BadPropertyError as problem:
        raise UsageError(str(problem)) from None


def client_of(options: Namespace) -> Client:
    """Create the wire client for the options of add_connection()."""
    config = getattr(options, "command_config", None)
    return make_client(bootstrap_of(options), command_properties(config))


def run_action(options: Namespace) -> int:
    """Run the chosen sub-command (`options.action`) with a client."""
    with client_of(options) as client:
        code: int = options.action(client, options)
        return code


def client_of_file(bootstrap: str, config: str | None, client_id: str = "adminclient-1") -> Client:
    """Create the wire client of one of Kafka's tools with the properties in `config`."""
    return make_client(bootstrap, command_properties(config), client_id)
