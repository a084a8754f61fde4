"""`kafka-delegation-tokens.sh`: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence

from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import run_reporting_errors
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, LONG_MAX, KafkaOptions, Option, OptionError
from ottla.cli.java.times import format_java_date
from ottla.cli.terminal import print_line, printable
from ottla.client.client import Client
from ottla.client.tokens import TokenWithHmac, create_token, describe_tokens, expire_token, renew_token
from ottla.operations.acls.acl_entries import parse_principal

TOOL = "kafka-delegation-tokens.sh"
SUMMARY = "This tool helps to create, renew, expire, or describe delegation tokens."
EXAMPLE = "--command-config client.properties --create --max-life-time-period -1 --renewer-principal User:bob"
ACTIONS = ("create", "renew", "expire", "describe")
DATE = "yyyy-MM-dd'T'HH:mm"
WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)
COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
REQUIRED = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
}
REFUSED = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": ("renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal"),
    "expire": ("renew", "max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"),
}
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("create", "Create a token."),
    Option("renew", "Extend the lifetime of a token."),
    Option("expire", "Shorten the lifetime of a token, or remove it."),
    Option("describe", "Show tokens: of one owner, or all that you may see."),
    Option("owner-principal", "Owner of the token: User:name.", "principal", is_repeatable=True, bare_value=""),
    Option(
        "renewer-principal",
        "With --create: other principals that may renew and expire it.",
        "principal",
        is_repeatable=True,
        bare_value="",
    ),
    Option("max-life-time-period", "With --create: milliseconds; -1: the brokers' maximum.", "ms"),
    Option("renew-time-period", "With --renew: milliseconds from now on; -1: the brokers' default.", "ms"),
    Option("expiry-time-period", "With --expire: milliseconds from now on; -1: at once.", "ms"),
    Option("hmac", "With --renew and --expire: the token's HMAC, as --create has shown it.", "hmac"),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    _check(options)

    def body() -> int:
        with client_of_file(options.text("bootstrap-server") or "", options.text("command-config")) as client:
            _run_action(client, options)
        return 0

    return run_reporting_errors(body)


def _check(options: KafkaOptions) -> None:
    if sum(map(options.has, ACTIONS)) != 1:
        options.print_usage_and_exit(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    options.check_required_args("bootstrap-server", "command-config")
    for action, names in REQUIRED.items():
        if options.has(action):
            options.check_required_args(*names)
    for action, names in REFUSED.items():
        options.check_invalid_args(action, *names)


def _run_action(client: Client, options: KafkaOptions) -> None:
    if options.has("create"):
        _create(client, options)
    elif options.has("renew"):
        hmac, period_ms = _hmac(options), _period(options, "renew-time-period")
        print_line(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{period_ms}")
        _completed("renew", renew_token(client, _decoded(hmac), period_ms))
    elif options.has("expire"):
        hmac, period_ms = _hmac(options), _period(options, "expiry-time-period")
        print_line(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{period_ms}")
        _completed("expire", expire_token(client, _decoded(hmac), period_ms))
    else:
        _describe(client, options)


def _create(client: Client, options: KafkaOptions) -> None:
    renewers, period_ms = _principals(options, "renewer-principal"), _period(options, "max-life-time-period")
    print(
        printable(
            f"Calling create token operation with renewers :[{', '.join(renewers)}] , max-life-time-period :{period_ms}"
        )
    )
    owners = _principals(options, "owner-principal")
    made = create_token(client, owner=owners[0] if owners else None, renewers=renewers, max_lifetime_ms=period_ms)
    print(f"Created delegation token with tokenId : {made.token.token_id}")
    _print_tokens([made])


def _describe(client: Client, options: KafkaOptions) -> None:
    owners = _principals(options, "owner-principal")
    if owners:
        print_line(f"Calling describe token operation for owners: [{', '.join(owners)}]")
    else:
        print("Calling describe token operation for current user.")
    tokens = describe_tokens(
        client, owners or None
    )  # None: all visible tokens; Kafka's tool shows none, contrary to its help
    print(f"Total number of tokens : {len(tokens)}", end="")
    _print_tokens(tokens)


def _print_tokens(tokens: Iterable[TokenWithHmac]) -> None:
    print(f"\n{_row(COLUMNS)}")
    for known in tokens:
        token = known.token
        cells = (
            *(token.token_id, known.password, token.owner, token.token_requester, f"[{', '.join(token.renewers)}]"),
            *(_date(time_ms) for time_ms in (token.issue_ms, token.expiry_ms, token.max_ms)),
        )
        print()
        print_line(_row(cells))


def _row(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _completed(action: str, expiry_ms: int) -> None:
    print(f"Completed {action} operation. New expiry date : {_date(expiry_ms)}", end="")


def _date(time_ms: int) -> str:
    try:
        return format_java_date(DATE, time_ms)
    except (ValueError, OverflowError):  # past the year 9999
        return str(time_ms)


def _principals(options: KafkaOptions, name: str) -> list[str]:
    try:
        return [parse_principal(text) for text in options.texts(name) if text]
    except ValueError as problem:
        raise OptionError(str(problem)) from None


def _period(options: KafkaOptions, name: str) -> int:
    return options.number(name, LONG_MAX) or 0


def _hmac(options: KafkaOptions) -> str:
    return options.text("hmac") or ""


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise OptionError("--hmac is not base64: use the value that --create printed under HMAC") from None
