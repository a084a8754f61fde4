"""`ottla users`: manages users with SCRAM passwords. The password itself never leaves this process.

The rights of users are managed by `ottla acls`.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag
from ottla.cli.client_settings import command_properties, run_action
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, confirm, print_line
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.quotas import ScramUpsertion, alter_scram, describe_scram
from ottla.security.jaas import escaped
from ottla.security.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN
from ottla.security.secure_folder import PASSWORD_BYTES, SCRAM_MODULE, write_secret

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8_192
TRUST_KEYS = ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password")
PASSWORD_VARIABLE = "OTTLA_PASSWORD"  # noqa: S105 - the name of a variable
COLUMNS = ("User", "Mechanism", "Iterations")
EXAMPLES = """
ottla users add alice --write alice.properties
ottla users add alice --password-file alice.password --mechanism SCRAM-SHA-256
ottla users list
ottla users remove alice
"""


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    return Parser(
        prog="ottla users",
        description="Manage users with SCRAM passwords. For their rights: ottla acls.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("list", "list users and their mechanisms", _list, flag("--json", help="for programs")),
            Command(
                "add",
                "add a user, or change the password",
                _add,
                Argument("user"),
                Argument("--mechanism", choices=MECHANISMS, default=DEFAULT_MECHANISM),
                Argument(
                    "--iterations", type=iterations_of, default=ITERATIONS, metavar="N", help=f"default: {ITERATIONS}"
                ),
                Argument(
                    "--password-file",
                    metavar="FILE",
                    help=f"its first line (default: {PASSWORD_VARIABLE}, else a prompt on a terminal, else a random "
                    "one)",
                ),
                Argument("--write", metavar="FILE", help="a file of client settings for this user, with the password"),
            ),
            Command(
                "remove",
                "remove all passwords of a user",
                _remove,
                Argument("user"),
                flag("--yes", "-y", help="skip the confirmation"),
            ),
        ),
    )


def iterations_of(text: str) -> int:
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"iterations {text!r}: the range is {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _list(client: Client, options: argparse.Namespace) -> int:
    found = describe_scram(client, ())
    rows = [
        (user, mechanism, iterations)
        for user, known in sorted(found.items())
        if not isinstance(known, BrokerError)
        for mechanism, iterations in known
    ]
    if options.json:
        print(json.dumps([{"user": user, "mechanism": name, "iterations": count} for user, name, count in rows]))
    else:
        print_table(COLUMNS, [(user, name, str(count)) for user, name, count in rows], COLUMNS[2:])
    return 0


def _add(client: Client, options: argparse.Namespace) -> int:
    password = given_password(options.password_file, options.user, is_random=options.write is not None)
    alter_scram(client, options.user, [ScramUpsertion(options.mechanism, options.iterations, password.encode())], ())
    print_line(f"{options.user} can log in with {options.mechanism}.")
    if options.write is not None:
        properties = command_properties(getattr(options, "command_config", None))
        write_secret(Path(options.write), login_file(options.user, options.mechanism, password, properties).encode())
        print_line(f"How: {options.write} (for --command-config and Kafka's own tools)")
    return 0


def _remove(client: Client, options: argparse.Namespace) -> int:
    known = describe_scram(client, (options.user,)).get(options.user)
    if isinstance(known, BrokerError):
        raise known
    if not known:
        raise ToolError(f"there is no user {options.user} with a password: ottla users list")
    if not options.yes and not confirm(f"Remove the passwords of {options.user}?"):
        return 1
    alter_scram(client, options.user, (), [mechanism for mechanism, _ in known])
    print_line(f"{options.user} can no longer log in with a password.")
    return 0


def given_password(path: str | None, user: str, *, is_random: bool) -> str:
    """The password from a file, the environment or a prompt; else a random one, if it will be written to a file."""
    if path is not None:
        try:
            password = Path(path).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeError) as problem:
            raise ToolError(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}".lower()) from None
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif is_random:
        return secrets.token_urlsafe(PASSWORD_BYTES)
    elif sys.stdin.isatty():
        password = getpass.getpass(f"Password for {user}: ")
    else:
        raise ToolError(f"which password? --password-file FILE, {PASSWORD_VARIABLE}, or --write FILE for a random one")
    if not password:
        raise ToolError("the password is empty")
    return password


def login_file(user: str, mechanism: str, password: str, ours: dict[str, str], *, is_token: bool = False) -> str:
    """Client settings that log in as this user, or with this token, and connect like this command."""
    kind = ' tokenauth="true"' if is_token else ""
    login = f'{SCRAM_MODULE} required username="{escaped(user)}" password="{escaped(password)}"{kind};'
    settings = {
        "security.protocol": ours.get("security.protocol", "SASL_PLAINTEXT"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login.replace("\\", "\\\\"),  # a properties file reads it as one backslash
        **{key: ours[key] for key in TRUST_KEYS if key in ours},
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
