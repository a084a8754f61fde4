"""The sub-commands of `kafka-storage.sh` and `ottla storage`: format log directories and print their metadata."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from ottla.base.names import id_text, parse_id
from ottla.cli.arguments import Argument, Command, OneOf, flag
from ottla.cli.java.hash_order import hash_map_order
from ottla.cli.java.options import OptionError
from ottla.cli.reports.feature_levels import (
    LATEST_LEVEL,
    METADATA,
    METADATA_VERSIONS,
    default_levels,
    dependency_lines,
    mapping_lines,
    metadata_level,
    parse_level,
)

if TYPE_CHECKING:
    from ottla.base.broker_settings import BrokerSettings

EXAMPLES = """
kafka-storage.sh random-uuid
kafka-storage.sh format --config server.properties --cluster-id "$(kafka-storage.sh random-uuid)" --standalone
kafka-storage.sh info --config server.properties
"""
SUMMARY = "Format the log directories of a broker and print their metadata."
RESERVED_IDS = (UUID(int=0), UUID(int=1))


def storage_commands() -> tuple[Command, ...]:
    """The sub-commands of `kafka-storage.sh` and `ottla storage`."""
    config = Argument("--config", "-c", required=True, metavar="FILE", help="the broker's server.properties")
    return (
        Command("info", "print the metadata of the log directories", _info, config),
        Command(
            "format",
            "prepare the log folders",
            _format,
            config,
            Argument("--cluster-id", "-t", required=True, metavar="ID", help="see random-uuid"),
            flag("--ignore-formatted", "-g", help="skip formatted directories"),
            Argument("--release-version", "-r", metavar="VERSION", help="release that defines the feature levels"),
            Argument("--feature", "-f", action="append", default=[], metavar="NAME=LEVEL", help="one feature"),
            Argument(
                "--add-scram",
                "-S",
                action="append",
                default=[],
                metavar="USER",
                help="SCRAM-SHA-256=[name=N,password=P]",
            ),
            OneOf(
                flag("--standalone", "-s", help="this node alone keeps the metadata"),
                flag("--no-initial-controllers", "-N", help="the metadata quorum has other initial controllers"),
                Argument(
                    "--initial-controllers", "-I", metavar="NODES", help="id@host:port:directory of each controller"
                ),
            ),
        ),
        Command(
            "version-mapping",
            "the levels of all features in a release",
            _mapping,
            Argument("--release-version", "-r", metavar="VERSION", help="default: the latest"),
        ),
        Command(
            "feature-dependencies",
            "the requirements of a feature level",
            _dependencies,
            Argument("--feature", "-f", action="append", required=True, metavar="NAME=LEVEL"),
        ),
        Command("random-uuid", "print an id for a new cluster", _random_uuid),
    )


def _random_uuid(_options: argparse.Namespace) -> int:
    print(random_id())
    return 0


def random_id() -> str:
    """A random id in Kafka's form; it never begins with a dash, which a command line would read as an option."""
    while True:
        made = uuid4()
        if made not in RESERVED_IDS and not id_text(made).startswith("-"):
            return id_text(made)


def _mapping(options: argparse.Namespace) -> int:
    print("\n".join(mapping_lines(options.release_version, is_production=True)))
    return 0


def _dependencies(options: argparse.Namespace) -> int:
    for line in dependency_lines(options.feature):
        print(line)
    return 0


def _info(options: argparse.Namespace) -> int:
    from ottla.cli.metadata.storage_folders import info_lines  # noqa: PLC0415 (random-uuid answers without it)

    lines, code = info_lines(sorted(_settings(options.config).log_dirs))
    print("\n".join(lines))
    return code


def _format(options: argparse.Namespace) -> int:
    from ottla.cli.metadata.first_users import write_users  # noqa: PLC0415
    from ottla.cli.metadata.storage_folders import format_folder, unformatted  # noqa: PLC0415

    settings = _settings(options.config)
    _check_quorum(options, settings)
    _check_features(options)
    users = _users(options, settings)
    todo = unformatted(
        hash_map_order(settings.log_dirs), settings.node_id, options.cluster_id, options.ignore_formatted
    )
    if users and settings.log_dirs[0] in todo:
        write_users(settings.log_dirs[0], users)
    if not todo:
        print("All of the log directories are already formatted.")
    for path in todo:
        is_metadata = path == settings.log_dirs[0] and "controller" in settings.process_roles
        format_folder(path, settings.node_id, options.cluster_id, bool(settings.process_roles))
        kind = "data" if not is_metadata else "dynamic metadata voter" if options.standalone else "metadata"
        print(f"Formatting {kind} directory {path} with metadata.version {METADATA_VERSIONS[LATEST_LEVEL]}.")
    return 0


def _users(options: argparse.Namespace, settings: BrokerSettings) -> dict[str, dict[str, str]]:
    from ottla.cli.metadata.first_users import parse_users  # noqa: PLC0415

    if options.add_scram and settings.zookeeper_connect:
        raise OptionError(
            f"--add-scram: this cluster keeps its users in ZooKeeper: kafka-configs.sh --zookeeper "
            f"{settings.zookeeper_connect} --alter --entity-type users --entity-name NAME "
            "--add-config 'SCRAM-SHA-512=[password=...]'"
        )
    return parse_users(options.add_scram)


def _settings(path: str) -> BrokerSettings:
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415
    from ottla.base.settings import SettingsError  # noqa: PLC0415

    try:
        return load_broker_settings(path, environment=os.environ)
    except SettingsError as problem:
        raise OptionError(str(problem)) from None


def _check_quorum(options: argparse.Namespace, settings: BrokerSettings) -> None:
    """Check that the options for the initial controllers fit the settings."""
    if "controller" not in settings.process_roles:
        return
    is_named = options.standalone or options.initial_controllers is not None
    if settings.controller_quorum_voters:
        if is_named:
            raise OptionError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
    elif not is_named and not options.no_initial_controllers:
        raise OptionError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    if options.initial_controllers is not None:
        _check_controllers(options.initial_controllers, settings.node_id)


def _check_controllers(text: str, node_id: int) -> None:
    """Check `id@host:port:directory`, separated by commas: a single-node quorum can name only itself."""
    for part in text.split(","):
        node, _, rest = part.partition("@")
        try:
            parse_id(rest.rpartition(":")[2])
        except ValueError as problem:
            raise OptionError(f"Failed to parse voter in {part}: {problem}") from None
        if node != str(node_id):
            raise OptionError(f"{part} is not node {node_id}: quorums of several controllers are not supported")


def _check_features(options: argparse.Namespace) -> None:
    """Reject levels other than this broker's: they would be ignored silently."""
    if options.release_version is not None:
        level = metadata_level(options.release_version, is_production=True)
        if level != LATEST_LEVEL:
            raise OptionError(
                f"metadata.version {METADATA_VERSIONS[level]} is older than this broker, which runs at "
                f"{METADATA_VERSIONS[LATEST_LEVEL]}: leave --release-version out"
            )
    known = {METADATA: LATEST_LEVEL, **default_levels(LATEST_LEVEL)}
    for name, level in map(parse_level, options.feature):
        if name not in known:
            raise OptionError(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(known))}")
        if level != known[name]:
            raise OptionError(f"{name}={level} is not supported: this broker runs at level {known[name]}")
