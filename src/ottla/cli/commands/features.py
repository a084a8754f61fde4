"""`ottla features`: feature flags of the cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag
from ottla.cli.client_settings import run_action
from ottla.cli.reports.feature_levels import METADATA, default_levels, level_text, metadata_level, parse_level
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, UsageError, warn
from ottla.client.client import Client
from ottla.client.cluster import UpgradeType, describe_features, update_features

EXAMPLES = """
ottla features list
ottla features upgrade --release 4.3 --dry-run
ottla features upgrade group.version=1
ottla features downgrade share.version=0
"""


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    return Parser(
        prog="ottla features",
        description="Show and change feature flags.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("list", "list the features and their levels", _list),
            *(
                Command(
                    name,
                    f"{name} features",
                    _update,
                    Argument("levels", nargs="*", metavar="NAME=LEVEL"),
                    Argument("--release", metavar="VERSION", help="all features at the levels of this Kafka release"),
                    flag("--dry-run", help="check, but change nothing"),
                    defaults={"operation": name},
                    examples=EXAMPLES,
                )
                for name in _TYPES
            ),
        ),
    )


_TYPES = {"upgrade": UpgradeType.UPGRADE, "downgrade": UpgradeType.SAFE_DOWNGRADE}


def _list(client: Client, _options: argparse.Namespace) -> int:
    rows = [
        (
            item.name,
            level_text(item.name, item.level),
            level_text(item.name, item.min_version),
            level_text(item.name, item.max_version),
        )
        for item in describe_features(client).features
    ]
    if rows:
        print_table(("Feature", "Level", "Lowest", "Highest"), rows)
    else:
        warn("This cluster has no feature flags.")  # on stderr, so that stdout contains only rows
    return 0


def _update(client: Client, options: argparse.Namespace) -> int:
    levels = dict(map(parse_level, options.levels))
    if options.release is not None:
        metadata = metadata_level(options.release)
        levels = {METADATA: metadata, **{name: level for name, level in default_levels(metadata).items() if level}}
    if not levels:
        raise UsageError("name features such as group.version=1, or a --release")
    results = update_features(client, levels, _TYPES[options.operation], options.dry_run)
    for name, refused in sorted(results.items()):
        if refused is None:
            print(f"{name} {'can be' if options.dry_run else 'was'} set to {levels[name]}.")
        else:
            warn(f"{name}: {refused}")
    return EXIT_FAILED if any(results.values()) else 0
