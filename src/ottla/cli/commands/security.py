"""`ottla security`: users, rights and quotas of a cluster as a file: written, compared, applied."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Final

from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.client_settings import client_of, command_properties, make_client
from ottla.cli.commands.users import DEFAULT_MECHANISM, ITERATIONS, MECHANISMS, given_password, iterations_of
from ottla.cli.security.cluster import apply_plan, read_cluster
from ottla.cli.security.plan import COLUMNS, Plan, make_plan
from ottla.cli.security.policy import (
    FILE_BYTES_MAX,
    RIGHTS,
    SECTIONS,
    Login,
    Policy,
    PolicyError,
    entry_text,
    policy_text,
    read_policy,
    user_entry,
)
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, ToolError, UsageError, is_terminal, say, stdin_bytes, warn
from ottla.client.client import Client
from ottla.client.quotas import Upsertion
from ottla.operations.acls.own_rights import Caller, lost_rights
from ottla.operations.acls.reading import authorizer_of
from ottla.security.acls import acls_of

EXIT_DRIFT: Final = 3
STDIN: Final = "-"
PROBLEMS_MAX: Final = 20
EXAMPLES: Final = """
ottla security export > security.yaml
ottla security apply security.yaml --dry-run
ottla security apply security.yaml --prune
ottla security hash alice >> security.yaml
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        code: int = options.action(options)
    except ModuleNotFoundError as problem:
        if problem.name != "yaml":
            raise
        raise ToolError("files of rights need PyYAML: pip install 'ottla[cli]'") from None
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="ottla security",
        description="Users, rights and quotas of a cluster, of ottla or of Apache Kafka, as a file.",
        examples=EXAMPLES,
    )
    add_connection(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    export = commands.add_parser("export", help="write what there is, without passwords", examples=EXAMPLES)
    export.set_defaults(action=_export)
    apply = commands.add_parser(
        "apply",
        help="change what differs from a file",
        description="Exit code 3 with --dry-run if something differs.",
        examples=EXAMPLES,
    )
    apply.set_defaults(action=_apply)
    apply.add_argument("file", metavar="FILE", help="as export writes it; -: standard input")
    apply.add_argument("--dry-run", action="store_true", help="only show what would change; exit code 3 if anything")
    apply.add_argument("--prune", action="store_true", help="remove what the file lacks, in the sections that it has")
    apply.add_argument(
        "--set-passwords", action="store_true", help="set the salted passwords of users that have one already, too"
    )
    apply.add_argument("--json", action="store_true", help="print JSON")
    for each in (export, apply):
        add_connection(each)
    hashing = commands.add_parser("hash", help="print a user with a hashed password, for the file")
    hashing.set_defaults(action=_hash)
    hashing.add_argument("user")
    hashing.add_argument("--mechanism", choices=MECHANISMS, default=DEFAULT_MECHANISM)
    hashing.add_argument(
        "--iterations", type=iterations_of, default=ITERATIONS, metavar="N", help=f"default: {ITERATIONS}"
    )
    hashing.add_argument("--password-file", metavar="FILE", help="its first line (default: OTTLA_PASSWORD, else asked)")
    return parser


# ---- the commands


def _export(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        found = read_cluster(client)
    notes = ["Rights: the cluster has no authorizer, so there are none."] if found.rights is None else []
    print(policy_text(found, notes), end="")
    return 0


def _apply(options: argparse.Namespace) -> int:
    try:
        wanted = read_policy(_read(options.file), options.file if options.file != STDIN else "<stdin>")
    except PolicyError as problem:
        for line in problem.lines[:PROBLEMS_MAX]:
            warn(f"ottla security: {line}")
        if len(problem.lines) > PROBLEMS_MAX:
            warn(f"ottla security: and {len(problem.lines) - PROBLEMS_MAX} more")
        return EXIT_USAGE
    properties = command_properties(getattr(options, "command_config", None))
    with make_client(bootstrap_of(options), properties) as client:
        sections = [name for name in SECTIONS if getattr(wanted, name) is not None]
        found = read_cluster(client, sections)
        if wanted.rights and found.rights is None:
            raise ToolError(f"the cluster has no authorizer (authorizer.class.name): leave {RIGHTS} out of the file")
        plan = make_plan(wanted, found, prunes=options.prune, sets_passwords=options.set_passwords)
        _refuse_own_end(client, Caller(properties), plan, found)
        if not options.dry_run:
            apply_plan(client, plan)
    _tell(plan, options)
    if options.dry_run:
        return 0 if plan.is_empty else EXIT_DRIFT
    return EXIT_FAILED if plan.impossible() else 0


def _hash(options: argparse.Namespace) -> int:
    password = given_password(options.password_file, options.user, is_random=False)
    salted = Upsertion(options.mechanism, options.iterations, password.encode()).salted()
    say(f"- {entry_text(user_entry(options.user, options.mechanism, Login(options.iterations, salted)))}")
    return 0


# ---- what they need


def _read(path: str) -> str:
    try:
        if path == STDIN:
            data = stdin_bytes().read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
                is_open = os.fstat(file.fileno()).st_mode & 0o077
            if is_open and b"salted_password" in data:
                warn(f"warning: {path} holds hashed passwords and others can read it: chmod 600 {path}")
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None


def _refuse_own_end(client: Client, caller: Caller, plan: Plan, found: Policy) -> None:
    """Nobody takes from himself in silence what he needs to undo it."""
    for change in plan.users:
        own = caller.principal == f"User:{change.user}" and caller.mechanism == change.mechanism
        if own and change.after is None:
            raise ToolError(
                f"refused, nothing was changed: {change.user} {change.mechanism} is how you log in yourself. "
                f"Leave it in the file, or: ottla users remove {change.user}"
            )
    if plan.rights:
        before = found.rights or frozenset()
        lost = lost_rights(caller, authorizer_of(client, before), acls_of(plan.rights_after(before)))
        if lost:
            who = "you" if caller.principal is not None else "you may be one of them, and"
            raise ToolError(
                f"refused, nothing was changed: it would no longer hold that {', '.join(lost)}; {who} could not undo "
                "it. Leave these rights in the file, or remove them with ottla acls remove"
            )


def _tell(plan: Plan, options: argparse.Namespace) -> None:
    rows = plan.rows()
    if options.json:
        changes = [dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows]
        print(json.dumps({"applied": not options.dry_run, "changes": changes, "left": plan.left}, indent=2))
    elif rows:
        print_table(COLUMNS, rows)
    elif is_terminal(sys.stdout):
        print("Nothing to change.")
    for change in plan.impossible():
        warn(
            f"ottla security: {change.user} needs a password for {change.mechanism}, which the file does not have: "
            f"ottla users add {change.user} --mechanism {change.mechanism}"
        )
    if plan.left:
        counts = ", ".join(f"{name}: {count}" for name, count in plan.left.items())
        warn(f"note: not in the file and left alone, --prune removes it: {counts}")
    if plan.untold:
        warn(f"note: passwords cannot be compared, --set-passwords sets them: {', '.join(plan.untold)}")
