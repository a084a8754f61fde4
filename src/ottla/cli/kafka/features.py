"""`kafka-features.sh`: feature flags of the cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from ottla.cli.arguments import Argument, Command, flag
from ottla.cli.java.errors import java_sentence, run_reporting_errors
from ottla.cli.java.hash_order import hash_map_order
from ottla.cli.java.options import OptionError
from ottla.cli.kafka.commands import COMMAND_CONFIG, KafkaParser, client_of_servers, servers
from ottla.cli.reports.feature_levels import (
    METADATA,
    default_levels,
    dependency_lines,
    level_text,
    mapping_lines,
    metadata_level,
    parse_level,
)
from ottla.cli.terminal import print_line
from ottla.client.client import Client
from ottla.client.cluster import Features, UpgradeType, describe_features, update_features
from ottla.client.errors import BrokerError

EXAMPLES = """
kafka-features.sh --bootstrap-server 127.0.0.1:9092 describe
kafka-features.sh --bootstrap-server 127.0.0.1:9092 upgrade --release-version 4.3 --dry-run
kafka-features.sh version-mapping --release-version 4.0
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)

    def body() -> int:
        code: int = options.action(options)
        return code

    return run_reporting_errors(body)


def _parser() -> KafkaParser:
    release = (
        Argument(
            "--metadata", metavar="VERSION", help="deprecated name of --release-version, for metadata.version only"
        ),
        Argument("--release-version", metavar="VERSION", help="all features at the levels of this release"),
    )
    feature = Argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="one feature")
    unsafe = flag("--unsafe", help="even if metadata may be lost")
    dry_run = flag("--dry-run", help="check, but change nothing")
    updates = {
        "upgrade": (*release, feature, dry_run),
        "downgrade": (*release, feature, unsafe, dry_run),
        "disable": (feature, unsafe, dry_run),
    }
    return KafkaParser(
        prog="kafka-features.sh",
        description="Show and change feature flags.",
        examples=EXAMPLES,
        arguments=(servers(is_required=False), COMMAND_CONFIG),
        commands=(
            Command(
                "describe",
                "show the features and their levels",
                _describe,
                Argument("--node-id", type=int, metavar="N", help="the node to query; any if not given"),
            ),
            *(
                Command(name, f"{name} features", _update, *arguments, defaults={"operation": name})
                for name, arguments in updates.items()
            ),
            Command(
                "version-mapping",
                "the levels of all features in a release",
                _mapping,
                Argument("--release-version", metavar="VERSION", help="default: the latest"),
            ),
            Command(
                "feature-dependencies",
                "the requirements of a feature level",
                _dependencies,
                Argument("--feature", action="append", required=True, metavar="NAME=LEVEL"),
            ),
        ),
    )


def _client(options: argparse.Namespace) -> Client:
    if options.bootstrap_server is None and options.bootstrap_controller is None:
        raise OptionError(
            "Command line error: You must specify either --bootstrap-controller or --bootstrap-server.. "
            "Type --help for help."
        )
    return client_of_servers(options)


def _describe(options: argparse.Namespace) -> int:
    with _client(options) as client:
        for line in feature_lines(describe_features(client, options.node_id)):
            print_line(line)
    return 0


def feature_lines(found: Features) -> list[str]:
    """One line for each feature, in columns."""
    epoch = "-" if found.epoch is None else found.epoch
    return [
        f"Feature: {item.name:<40}  SupportedMinVersion: {level_text(item.name, item.min_version):<15}  "
        f"SupportedMaxVersion: {level_text(item.name, item.max_version):<15}  "
        f"FinalizedVersionLevel: {level_text(item.name, item.level):<15}  Epoch: {epoch}"
        for item in found.features
    ]


def _mapping(options: argparse.Namespace) -> int:
    print("\n".join(mapping_lines(options.release_version)))
    return 0


def _dependencies(options: argparse.Namespace) -> int:
    for line in dependency_lines(options.feature):
        print(line)
    return 0


def _update(options: argparse.Namespace) -> int:
    with _client(options) as client:
        levels = _levels(options)
        if not levels:
            raise OptionError(f"You must specify at least one feature to {options.operation}")
        levels = {
            name: levels[name] for name in hash_map_order(levels)
        }  # Kafka names the first rejected feature in this order
        results = update_features(client, levels, _upgrade_type(options), options.dry_run)
    failed = [name for name, refused in results.items() if refused is not None]
    for line in result_lines(options.operation, levels, results, options.dry_run):
        print_line(line)
    if failed:
        raise OptionError(f"{len(failed)} out of {len(levels)} operation(s) failed.")
    return 0


def _upgrade_type(options: argparse.Namespace) -> UpgradeType:
    if options.operation == "upgrade":
        return UpgradeType.UPGRADE
    return UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE


def _levels(options: argparse.Namespace) -> dict[str, int]:
    """The requested level of each feature."""
    if options.operation == "disable":
        return _without_doubles([(name, 0) for name in options.feature])
    if options.release_version is not None:
        if options.metadata is not None or options.feature:
            raise OptionError("Can not specify `release-version` with other feature flags.")
        metadata = metadata_level(options.release_version)
        others = {name: level for name, level in default_levels(metadata).items() if level}
        return {METADATA: metadata, **others}
    pairs = []
    if options.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        pairs.append((METADATA, metadata_level(options.metadata)))
    return _without_doubles([*pairs, *map(parse_level, options.feature)])


def _without_doubles(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name, level in pairs:
        if name in levels:
            raise OptionError(f"Feature {name} was specified more than once.")
        levels[name] = level
    return levels


def result_lines(
    operation: str, levels: Mapping[str, int], results: Mapping[str, BrokerError | None], is_dry: bool
) -> list[str]:
    lines = []
    for name in sorted(results):
        refused = results[name]
        if refused is not None:
            object_ = f"disable {name}" if operation == "disable" else f"{operation} {name} to {levels[name]}"
            lines.append(f"{'Can not' if is_dry else 'Could not'} {object_}. {java_sentence(refused)}")
        else:
            done = "disabled." if operation == "disable" else f"{operation}d to {levels[name]}."
            lines.append(f"{name} {'can be' if is_dry else 'was'} {done}")
    return lines
