"""`kafka-broker-api-versions.sh`: the APIs and versions that each broker supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.base.text import escape_line
from ottla.cli.client_settings import client_of_file
from ottla.cli.cluster.api_names import KNOWN_APIS, ApiVersionRange
from ottla.cli.java.errors import java_sentence
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.client import Client
from ottla.client.cluster import api_versions
from ottla.client.errors import ClientError

TOOL = "kafka-broker-api-versions.sh"
SUMMARY = "Show which APIs the brokers offer, and in which versions."
OPTIONS = (BOOTSTRAP, COMMAND_CONFIG)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments)
    options.check_required_args("bootstrap-server")
    try:
        with client_of_file(
            options.text("bootstrap-server") or "", options.text("command-config"), "admin-1"
        ) as client:
            _print_all(client)
    except (ClientError, ToolError) as problem:
        warn(str(problem))
        return EXIT_FAILED
    return 0


def _print_all(client: Client) -> None:
    for broker in client.cluster().brokers:
        title = escape_line(
            f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
        )
        try:
            offered = {
                item.api_key: (item.min_version, item.max_version)
                for item in api_versions(client, broker.node_id).api_keys
            }
        except ClientError as problem:
            print_line(f"{title} -> ERROR: {java_sentence(problem)}")
            continue
        print(f"{escape_line(title)} -> (\n" + ",\n".join(f"\t{line}" for line in version_lines(offered)) + "\n)")


def version_lines(offered: dict[int, tuple[int, int]]) -> Iterator[str]:
    """One line for each API that this tool or the broker knows, sorted by key."""
    for key in sorted(KNOWN_APIS.keys() | offered.keys()):
        known = KNOWN_APIS.get(key)
        if key not in offered:
            assert known is not None
            yield f"{known.name}({key}): UNSUPPORTED"
        elif known is None:
            yield f"UNKNOWN({key}): {_range(*offered[key])}"
        else:
            yield f"{known.name}({key}): {_range(*offered[key])} [{_usable(known, *offered[key])}]"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _usable(known: ApiVersionRange, low: int, high: int) -> str:
    best = min(high, known.max_version)
    if best >= max(low, known.min_version):
        return f"usable: {best}"
    return "unusable: node too new" if low > known.max_version else "unusable: node too old"
