"""`ottla users`: who may log in with SASL/SCRAM. Passwords come from the terminal or a file, not the command line."""

from __future__ import annotations

import argparse
import getpass
import json
import secrets
import sys
from collections.abc import Sequence

from ottla.cli.arguments import Parser, add_connection
from ottla.cli.client_settings import run_action
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, UsageError, is_terminal, say
from ottla.client.client import Client
from ottla.client.errors import RefusedError
from ottla.client.quotas import Upsertion, alter_scram, describe_scram
from ottla.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS

EXAMPLES = """
ottla users set alice
ottla users set alice --password-file secret.txt --mechanism SCRAM-SHA-512
ottla users set reports --generate
ottla users list --json
ottla users delete alice
"""
ITERATIONS = 8192
PASSWORD_BYTES_MAX = 1024
GENERATED_BYTES = 24


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    parser = Parser(prog="ottla users", description="Who may log in with SASL/SCRAM.", examples=EXAMPLES)
    add_connection(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    listing = commands.add_parser("list", help="list users and their mechanisms")
    listing.add_argument("names", nargs="*", metavar="NAME", help="only these")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(action=_list)
    change = commands.add_parser("set", help="make a user, or give one another password")
    change.add_argument("name", metavar="NAME")
    source = change.add_mutually_exclusive_group()
    source.add_argument("--password-file", metavar="FILE", help="the password is the first line of this file")
    source.add_argument("--generate", action="store_true", help="make a random password and print it")
    change.add_argument("--iterations", type=_iterations, default=ITERATIONS, metavar="N", help=f"default {ITERATIONS}")
    delete = commands.add_parser("delete", help="take passwords away")
    delete.add_argument("names", nargs="+", metavar="NAME")
    for command in (change, delete):
        command.add_argument("--mechanism", choices=sorted(NUMBERS), help="only for this one (default: for both)")
    change.set_defaults(action=_set)
    delete.set_defaults(action=_delete)
    return parser


def _iterations(text: str) -> int:
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    return int(text)


def _list(client: Client, options: argparse.Namespace) -> int:
    found = _described(client, options.names)
    missing = sorted(set(options.names) - set(found))
    if missing:
        raise ToolError(f"no such user: {', '.join(missing)}")
    if options.json:
        rows = [{"user": name, "mechanisms": dict(found[name])} for name in sorted(found)]
        print(json.dumps(rows))
        return 0
    print_table(
        ("user", "mechanism", "iterations"),
        [(name, mechanism, str(number)) for name in sorted(found) for mechanism, number in found[name]],
        numbers=("iterations",),
    )
    return 0


def _described(client: Client, names: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
    found = {}
    for name, row in describe_scram(client, names).items():
        if isinstance(row, RefusedError):
            raise row
        found[name] = row
    return found


def _set(client: Client, options: argparse.Namespace) -> int:
    password = _password(options)
    mechanisms = [options.mechanism] if options.mechanism else sorted(NUMBERS)
    changes = [Upsertion(mechanism, options.iterations, password.encode()) for mechanism in mechanisms]
    alter_scram(client, options.name, changes, [])
    say(f"User {options.name} may log in with {' and '.join(mechanisms)}.")
    if options.generate:
        print(f"password: {password}")
    return 0


def _password(options: argparse.Namespace) -> str:
    if options.generate:
        return secrets.token_urlsafe(GENERATED_BYTES)
    if options.password_file is not None:
        try:
            with open(options.password_file, encoding="utf-8") as file:
                password = file.readline(PASSWORD_BYTES_MAX + 2).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "it is not a text"
            raise UsageError(f"cannot read {options.password_file}: {reason.lower()}") from None
    elif is_terminal(sys.stdin):
        password = getpass.getpass("password: ")
        if password != getpass.getpass("again: "):
            raise ToolError("these are two passwords")
    else:
        password = sys.stdin.readline(PASSWORD_BYTES_MAX + 2).rstrip("\r\n")
    if not password or len(password) > PASSWORD_BYTES_MAX:
        raise UsageError("there is no password" if not password else "the password is too long")
    return password


def _delete(client: Client, options: argparse.Namespace) -> int:
    found = _described(client, options.names)
    missing = sorted(set(options.names) - set(found))
    if missing:
        raise ToolError(f"no such user: {', '.join(missing)}")
    for name in options.names:
        had = [mechanism for mechanism, _ in found[name] if options.mechanism in (None, mechanism)]
        if not had:
            raise ToolError(f"user {name} has no password for {options.mechanism}")
        alter_scram(client, name, [], had)
        say(f"User {name} can no longer log in with {' and '.join(had)}.")
    return 0
