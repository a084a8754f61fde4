"""`ottla tokens`: manages delegation tokens, with which programs log in for a limited time without a password.

A token is identified by its id. Its password is printed only on request, or preferably written to a file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag
from ottla.cli.client_settings import command_properties, run_action
from ottla.cli.commands.users import DEFAULT_MECHANISM, MECHANISMS, login_file
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, confirm, print_line, warn
from ottla.client.client import Client
from ottla.client.tokens import TokenWithHmac, create_token, describe_tokens, expire_token, renew_token
from ottla.operations.acls.acl_entries import parse_principal
from ottla.security.secure_folder import write_secret

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME_MS_MAX = 2**62
COLUMNS = ("Token", "Owner", "Requester", "Renewers", "Expires", "Renewable until")
EXAMPLES = """
ottla tokens create --write job.properties          a file of client settings that logs in with a new token
ottla tokens create --renewer User:scheduler --lifetime 2d
ottla tokens list --owner User:alice
ottla tokens renew vMWf7pSrTLuVRd9F5S2bPw --for 12h
ottla tokens expire vMWf7pSrTLuVRd9F5S2bPw
"""


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    json = flag("--json", help="for programs; with the passwords")
    return Parser(
        prog="ottla tokens",
        description="Delegation tokens: a login without a password, for a while.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "the tokens that you may see",
                _list,
                Argument(
                    "--owner",
                    type=_principal,
                    action="append",
                    metavar="PRINCIPAL",
                    help="only tokens of this owner: User:name",
                ),
                json,
            ),
            Command(
                "create",
                "create a token",
                _create,
                Argument("--owner", type=_principal, metavar="PRINCIPAL", help="the owner (default: you)"),
                Argument(
                    "--renewer",
                    type=_principal,
                    action="append",
                    default=[],
                    metavar="PRINCIPAL",
                    help="another principal that may renew it",
                ),
                Argument(
                    "--lifetime", type=_time, default=-1, metavar="TIME", help="such as 2d (default: the brokers')"
                ),
                Argument("--mechanism", choices=MECHANISMS, default=DEFAULT_MECHANISM, help="of the file of --write"),
                Argument("--write", metavar="FILE", help="a file of client settings that logs in with the token"),
                json,
            ),
            Command(
                "renew",
                "extend the lifetime of a token",
                _renew,
                Argument("token"),
                Argument("--for", dest="time_ms", type=_time, default=-1, metavar="TIME", help="from now on"),
            ),
            Command(
                "expire",
                "expire a token now or later",
                _expire,
                Argument("token"),
                Argument("--in", dest="time_ms", type=_time, default=-1, metavar="TIME", help="default: now"),
                flag("--yes", "-y", help="skip the confirmation"),
            ),
        ),
    )


def _principal(text: str) -> str:
    try:
        return parse_principal(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _time(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30m, 12h or 7d")
    return min(int(match[1]) * UNITS_MS[match[2]], TIME_MS_MAX)


def _list(client: Client, options: argparse.Namespace) -> int:
    found = sorted(describe_tokens(client, options.owner), key=lambda known: known.token)
    if options.json:
        print(json.dumps([_fields(known) for known in found]))
        return 0
    rows = [
        (
            token.token_id,
            token.owner,
            token.token_requester,
            ",".join(token.renewers),
            _time_text(token.expiry_ms),
            _time_text(token.max_ms),
        )
        for token, _ in found
    ]
    print_table(COLUMNS, rows)
    return 0


def _create(client: Client, options: argparse.Namespace) -> int:
    made = create_token(client, owner=options.owner, renewers=options.renewer, max_lifetime_ms=options.lifetime)
    token = made.token
    if options.write is not None:
        properties = command_properties(getattr(options, "command_config", None))
        text = login_file(token.token_id, options.mechanism, made.password, properties, is_token=True)
        write_secret(Path(options.write), text.encode())
    if options.json:
        print(json.dumps(_fields(made)))
        return 0
    validity = (
        f"Valid for {token.owner} until {_time_text(token.expiry_ms)}; renewable until {_time_text(token.max_ms)}."
    )
    if options.write is None:
        print(f"{token.token_id}\t{made.password}")
        warn(validity)  # on stderr: scripts read only the line above
    else:
        print_line(f"Token {token.token_id} is in {options.write} (for --command-config and Kafka's own tools)")
        print_line(validity)
    return 0


def _renew(client: Client, options: argparse.Namespace) -> int:
    until_ms = renew_token(client, _find_token(client, options.token).hmac, options.time_ms)
    print_line(f"Token {options.token} is valid until {_time_text(until_ms)}.")
    return 0


def _expire(client: Client, options: argparse.Namespace) -> int:
    known = _find_token(client, options.token)
    if not options.yes and not confirm(f"Expire token {options.token} of {known.token.owner}?"):
        return 1
    until_ms = expire_token(client, known.hmac, options.time_ms)
    if options.time_ms < 0:
        print_line(f"Token {options.token} is expired.")
    else:
        print_line(f"Token {options.token} is valid until {_time_text(until_ms)}.")
    return 0


def _find_token(client: Client, token_id: str) -> TokenWithHmac:
    found = next((known for known in describe_tokens(client) if known.token.token_id == token_id), None)
    if found is None:
        raise ToolError(f"there is no visible token {token_id}: ottla tokens list")
    return found


def _fields(known: TokenWithHmac) -> dict[str, object]:
    token = known.token
    return {
        "token": token.token_id,
        "password": known.password,
        "owner": token.owner,
        "requester": token.token_requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issue_ms,
        "expires_ms": token.expiry_ms,
        "renewable_until_ms": token.max_ms,
    }


def _time_text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError):  # after the year 9999
        return "for ever"
