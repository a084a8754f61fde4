"""`ottla security`: exports users, ACLs and quotas to a file, compares them with a file, applies a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, bootstrap_of, flag
from ottla.cli.client_settings import client_of, command_properties, make_client
from ottla.cli.cluster_file.policy import entry_text, policy_text, read_policy, user_entry
from ottla.cli.cluster_file.policy_document import (
    FileError,
    display_path,
    load_policy_text,
    print_problems,
    warn_unmanaged,
)
from ottla.cli.commands.users import DEFAULT_MECHANISM, ITERATIONS, MECHANISMS, given_password, iterations_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, ToolError, drift_code, is_terminal, print_line, warn
from ottla.client.client import Client
from ottla.client.quotas import ScramUpsertion
from ottla.operations.acls.evaluation import Caller
from ottla.operations.cluster_policy.security_admin import make_checked_plan, read_cluster, security_steps
from ottla.operations.cluster_policy.security_plan import COLUMNS, Plan, run_steps
from ottla.operations.cluster_policy.security_policy import Login

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
    return Parser(
        prog="ottla security",
        description="Users, rights and quotas of a cluster, of ottla or of Apache Kafka, as a file.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("export", "print the current state, without passwords", _export, examples=EXAMPLES),
            Command(
                "apply",
                "apply the differences of a file",
                _apply,
                Argument("file", metavar="FILE", help="as export writes it; -: standard input"),
                flag(
                    "--dry-run", help="only print the changes: exit code 3 if there are any, 1 if they are impossible"
                ),
                flag("--prune", help="remove what is not in the file, within the sections of the file"),
                flag("--set-passwords", help="also set the salted passwords of users that already have one"),
                flag("--json", help="print JSON"),
                description="Exit code 3 with --dry-run if something differs, 1 if it cannot be applied.",
                examples=EXAMPLES,
            ),
            Command(
                "hash",
                "print a user with a hashed password, for the file",
                _hash,
                Argument("user"),
                Argument("--mechanism", choices=MECHANISMS, default=DEFAULT_MECHANISM),
                Argument(
                    "--iterations", type=iterations_of, default=ITERATIONS, metavar="N", help=f"default: {ITERATIONS}"
                ),
                Argument(
                    "--password-file", metavar="FILE", help="its first line (default: OTTLA_PASSWORD, else a prompt)"
                ),
                has_shared=False,
            ),
        ),
    )


# ---- commands


def _export(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        found = read_cluster(client)
    notes = ["Rights: the cluster has no authorizer, so there are none."] if found.rights is None else []
    print(policy_text(found, notes), end="")
    return 0


def _apply(options: argparse.Namespace) -> int:
    try:
        wanted = read_policy(load_policy_text(options.file), display_path(options.file))
    except FileError as problem:
        print_problems("ottla security", problem)
        return EXIT_USAGE
    properties = command_properties(getattr(options, "command_config", None))
    with make_client(bootstrap_of(options), properties) as client:
        plan = make_checked_plan(
            client, wanted, Caller(properties), prunes=options.prune, sets_passwords=options.set_passwords
        )
        if not options.dry_run:
            _carry_out(client, plan)
    _print_plan(plan, options)
    if options.dry_run:
        return drift_code(differs=not plan.is_empty, is_impossible=bool(plan.impossible()))
    return EXIT_FAILED if plan.impossible() else 0


def _carry_out(client: Client, plan: Plan) -> None:
    outcome = run_steps(security_steps(client, plan))
    if outcome.problem is not None:
        total = len(outcome.done) + len(outcome.not_done)
        raise ToolError(
            f"stopped after {len(outcome.done)} of {total} changes: {outcome.problem}. Correct it, then apply again"
        )


def _hash(options: argparse.Namespace) -> int:
    password = given_password(options.password_file, options.user, is_random=False)
    salted = ScramUpsertion(options.mechanism, options.iterations, password.encode()).salted()
    print_line(f"- {entry_text(user_entry(options.user, options.mechanism, Login(options.iterations, salted)))}")
    return 0


# ---- output


def _print_plan(plan: Plan, options: argparse.Namespace) -> None:
    rows = plan.rows()
    if options.json:
        changes = [dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows]
        print(json.dumps({"applied": not options.dry_run, "changes": changes, "left": plan.unmanaged}, indent=2))
    elif rows:
        print_table(COLUMNS, rows)
    elif is_terminal(sys.stdout):
        print("Nothing to change.")
    for change in plan.impossible():
        warn(f"ottla security: {change.impossible_reason()}")
    warn_unmanaged(plan.unmanaged)
    if plan.uncompared_passwords:
        warn(f"note: passwords cannot be compared, --set-passwords sets them: {', '.join(plan.uncompared_passwords)}")
