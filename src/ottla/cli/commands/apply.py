"""`ottla apply`: exports a whole cluster to a file, compares it with a file, applies a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli.arguments import CONNECTION, Argument, Parser, bootstrap_of, flag
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.cluster_file.document import cluster_text, hidden_notes, read_cluster_file
from ottla.cli.cluster_file.policy_document import (
    STDIN,
    FileError,
    display_path,
    load_policy_text,
    print_problems,
    warn_unmanaged,
)
from ottla.cli.registry_options import REGISTRY, registry_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ToolError,
    UsageError,
    confirm,
    drift_code,
    is_terminal,
    warn,
)
from ottla.operations.acls.evaluation import Caller
from ottla.operations.cluster_policy.cluster_admin import (
    cluster_steps,
    make_checked_plan,
    read_cluster,
    wait_for_topics,
    without_temporary_settings,
)
from ottla.operations.cluster_policy.cluster_plan import ClusterPlan
from ottla.operations.cluster_policy.cluster_state import SECTIONS, ClusterState
from ottla.operations.cluster_policy.schemas import read_subjects
from ottla.operations.cluster_policy.security_plan import COLUMNS, Outcome, Row, run_steps
from ottla.operations.schema_registry.client_config import without_registry
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.schemas import UnregisteredSchema

TOOL: Final = "ottla apply"
LINES_MAX: Final = 20
EXAMPLES: Final = """
ottla apply --export > cluster.yaml
ottla apply cluster.yaml --dry-run            exit code 3 if the cluster differs
ottla apply cluster.yaml
ottla apply cluster.yaml --prune --yes        also removes what is not in the file
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.export == (options.file is not None):
        raise UsageError("name a file to apply, or write one with --export")
    properties = command_properties(getattr(options, "command_config", None))
    try:
        if options.export:
            return _export(options, properties)
        return _apply(options, properties)
    except ModuleNotFoundError as problem:
        if problem.name != "yaml":
            raise
        raise ToolError("files of a cluster need PyYAML: pip install 'ottla[cli]'") from None


def _parser() -> Parser:
    return Parser(
        prog=TOOL,
        description="Export a cluster of ottla or Apache Kafka to a file, compare it with a file, apply a file.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            REGISTRY,
            Argument("file", nargs="?", metavar="FILE", help="the wanted state of the cluster; -: standard input"),
            flag("--export", help="print the current state of the cluster, without secrets"),
            flag("--dry-run", help="only print the changes: exit code 3 if there are any, 1 if they are impossible"),
            flag("--prune", help="remove what is not in the file, within the sections of the file"),
            flag("--yes", "-y", help="remove without confirmation"),
            flag("--set-passwords", help="also set existing secrets, which cannot be compared"),
            flag("--json", help="print JSON"),
        ),
    )


# ---- export


def _export(options: argparse.Namespace, properties: dict[str, str]) -> int:
    registry = registry_of(options, properties, None)
    notes = []
    with make_client(bootstrap_of(options), without_registry(properties)) as client:
        found = without_temporary_settings(read_cluster(client, SECTIONS))
    if found.policy.rights is None:
        notes.append("Rights: the cluster has no authorizer, so there are none.")
    if registry is None:
        notes.append("Schemas: no registry was named (--registry URL).")
    else:
        found = found._replace(schemas=read_subjects(registry))
    print(cluster_text(found, [*notes, *hidden_notes(found)]), end="")
    return 0


# ---- apply


def _apply(options: argparse.Namespace, properties: dict[str, str]) -> int:
    try:
        wanted = _wanted(options.file)
    except FileError as problem:
        print_problems(TOOL, problem)
        return EXIT_USAGE
    registry = registry_of(options, properties) if wanted.schemas is not None else None
    with make_client(bootstrap_of(options), without_registry(properties)) as client:
        plan = make_checked_plan(
            client,
            registry,
            wanted,
            Caller(properties),
            prunes=options.prune,
            sets_secrets=options.set_passwords,
        )
        if options.dry_run:
            _show(plan, plan.rows(), options)
            _print_reasons(plan)
            return drift_code(differs=not plan.is_empty, is_impossible=bool(plan.reasons()))
        if plan.reasons():
            _show(plan, plan.rows(), options)
            _print_reasons(plan)
            warn(f"{TOOL}: nothing was changed")
            return EXIT_FAILED
        is_shown = _confirm_removals(plan, options)
        outcome = run_steps(cluster_steps(client, registry, plan))
        if outcome.problem is None:
            wait_for_topics(client, plan)
    done: set[Row] = set() if is_shown else set(outcome.done)
    _show(plan, [row for row in plan.rows() if row in done], options, outcome)
    return _print_outcome(outcome)


def _wanted(path: str) -> ClusterState:
    """Read the file. Raises FileError."""
    folder = Path() if path == STDIN else Path(path).parent

    def read_draft(name: str, kind: str | None) -> UnregisteredSchema:
        return read_draft_file(folder / name, kind)

    return read_cluster_file(load_policy_text(path), display_path(path), read_draft)


def _confirm_removals(plan: ClusterPlan, options: argparse.Namespace) -> bool:
    """Ask for confirmation of removals; returns whether the plan was printed. Raises ToolError if the answer is no."""
    removals = plan.removals()
    if not removals or options.yes:
        return False
    if options.json or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError(f"--prune would remove {len(removals)} items, nothing was changed: add --yes to confirm")
    print_table(COLUMNS, plan.rows())
    if not confirm(f"Remove the {len(removals)} items marked with -, topics with all their records?"):
        raise ToolError("nothing was changed")
    return True


def _show(plan: ClusterPlan, rows: Sequence[Row], options: argparse.Namespace, outcome: Outcome | None = None) -> None:
    if options.json:
        done = set(outcome.done) if outcome is not None else set()
        names = [column.lower() for column in COLUMNS]
        changes = [{**dict(zip(names, row, strict=True)), "done": row in done} for row in plan.rows()]
        applied = outcome is not None and outcome.problem is None
        print(json.dumps({"applied": applied, "changes": changes, "left": plan.unmanaged}, indent=2))
    elif rows:
        print_table(COLUMNS, rows)
    elif plan.is_empty and is_terminal(sys.stdout):
        print("Nothing to change.")
    warn_unmanaged(plan.unmanaged)
    if plan.uncompared_secrets:
        warn(f"note: secrets cannot be compared, --set-passwords sets them: {', '.join(plan.uncompared_secrets)}")


def _print_reasons(plan: ClusterPlan) -> None:
    reasons = plan.reasons()
    for reason in reasons[:LINES_MAX]:
        warn(f"{TOOL}: {reason}")
    if len(reasons) > LINES_MAX:
        warn(f"{TOOL}: and {len(reasons) - LINES_MAX} more")


def _print_outcome(outcome: Outcome) -> int:
    """Print how far an incomplete run came; returns the exit code."""
    if outcome.problem is None:
        return 0
    is_interrupted = isinstance(outcome.problem, KeyboardInterrupt)
    cause = "interrupted" if is_interrupted else str(outcome.problem)
    where = f" at {outcome.row[1]} {outcome.row[2]}" if outcome.row is not None else ""
    total = len(outcome.done) + len(outcome.not_done)
    warn(f"{TOOL}: stopped{where}: {cause}")
    warn(f"{TOOL}: {len(outcome.done)} of {total} changes are made. Apply the file again to continue; not made:")
    for row in outcome.not_done[:LINES_MAX]:
        warn(f"  {' '.join(cell for cell in row[:3] if cell)}")
    if len(outcome.not_done) > LINES_MAX:
        warn(f"  and {len(outcome.not_done) - LINES_MAX} more")
    return EXIT_INTERRUPTED if is_interrupted else EXIT_FAILED
