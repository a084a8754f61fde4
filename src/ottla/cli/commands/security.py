"""`ottla security`: users, rights and quotas of a cluster as a file: written, compared, applied."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.client_settings import client_of, command_properties, make_client
from ottla.cli.commands.users import DEFAULT_MECHANISM, ITERATIONS, MECHANISMS, given_password, iterations_of
from ottla.cli.security.cluster import read_cluster, security_steps
from ottla.cli.security.entries import FileError
from ottla.cli.security.loading import load_text, shown_path, tell_problems
from ottla.cli.security.own_end import check_authorizer, refuse_own_end
from ottla.cli.security.plan import COLUMNS, Plan, make_plan
from ottla.cli.security.policy import SECTIONS, Login, entry_text, policy_text, read_policy, user_entry
from ottla.cli.security.steps import carry_out
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, ToolError, drift_code, is_terminal, say, warn
from ottla.client.client import Client
from ottla.client.quotas import Upsertion
from ottla.operations.acls.own_rights import Caller

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
        description="Exit code 3 with --dry-run if something differs, 1 if it cannot be applied.",
        examples=EXAMPLES,
    )
    apply.set_defaults(action=_apply)
    apply.add_argument("file", metavar="FILE", help="as export writes it; -: standard input")
    apply.add_argument(
        "--dry-run", action="store_true", help="only show what would change: exit code 3 if anything, 1 if it cannot"
    )
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
        wanted = read_policy(load_text(options.file), shown_path(options.file))
    except FileError as problem:
        tell_problems("ottla security", problem)
        return EXIT_USAGE
    properties = command_properties(getattr(options, "command_config", None))
    with make_client(bootstrap_of(options), properties) as client:
        sections = [name for name in SECTIONS if getattr(wanted, name) is not None]
        found = read_cluster(client, sections)
        check_authorizer(wanted, found)
        plan = make_plan(wanted, found, prunes=options.prune, sets_passwords=options.set_passwords)
        refuse_own_end(client, Caller(properties), plan, found)
        if not options.dry_run:
            _carry_out(client, plan)
    _tell(plan, options)
    if options.dry_run:
        return drift_code(differs=not plan.is_empty, is_impossible=bool(plan.impossible()))
    return EXIT_FAILED if plan.impossible() else 0


def _carry_out(client: Client, plan: Plan) -> None:
    outcome = carry_out(security_steps(client, plan))
    if outcome.problem is not None:
        total = len(outcome.done) + len(outcome.left)
        raise ToolError(
            f"stopped after {len(outcome.done)} of {total} changes: {outcome.problem}. Once mended, apply it again"
        )


def _hash(options: argparse.Namespace) -> int:
    password = given_password(options.password_file, options.user, is_random=False)
    salted = Upsertion(options.mechanism, options.iterations, password.encode()).salted()
    say(f"- {entry_text(user_entry(options.user, options.mechanism, Login(options.iterations, salted)))}")
    return 0


# ---- what they need


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
        warn(f"ottla security: {change.why_not()}")
    if plan.left:
        counts = ", ".join(f"{name}: {count}" for name, count in plan.left.items())
        warn(f"note: not in the file and left alone, --prune removes it: {counts}")
    if plan.untold:
        warn(f"note: passwords cannot be compared, --set-passwords sets them: {', '.join(plan.untold)}")
