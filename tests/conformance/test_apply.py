"""`ottla apply` with a real cluster and a real registry: applied, changed by hand, compared, pruned, refused."""

import json
import resource
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.conftest import ALL_RIGHTS, broker_of_module
from tests.conformance.peer import Peer
from tests.conformance.registry_node import RegistryNode
from tests.conformance.test_quota_tools import Done, ottla
from tests.conftest import Broker, ottla_command

ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"}]}'
MORE = (
    '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"n","type":"int","default":0}]}'
)
FILE = """\
topic_defaults: {partitions: 2, replication_factor: 1}
topics:
- {name: PREFIX-orders, partitions: 4, settings: {retention.ms: 86400000, min.cleanable.dirty.ratio: 0.50}}
- {name: PREFIX-payments}
brokers:
- {broker-defaults: true, settings: {log.cleaner.backoff.ms: 14000}}
- {broker: 1, settings: {num.io.threads: 9}}
groups:
- {group: PREFIX-billing, settings: {consumer.session.timeout.ms: 50000}}
rights:
- {allow: 'User:PREFIX-alice', operation: [read, describe], topic: PREFIX-orders}
quotas:
- {user: PREFIX-alice, producer_byte_rate: 1048576}
"""
THOUSAND = 1000
CPU_SECONDS_MAX = 3.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    yield from broker_of_module(tmp_path_factory, ALL_RIGHTS)


@pytest.fixture
def prefix(address: str) -> Iterator[str]:
    """Of the names of a test; what exists of them is deleted at the end (a foreign broker lives on)."""
    made = f"apply-{uuid.uuid4().hex[:8]}"
    yield made
    for broker, key in (("default", "log.cleaner.backoff.ms"), ("1", "num.io.threads")):
        assert ottla(address, "configs", "unset", "broker", broker, key).code == 0
    with Peer(address) as peer:
        left_over = sorted(name for name in peer.topic_names() if name.startswith(made))
        if left_over:
            peer.delete_topics(left_over)


@pytest.fixture
def file(tmp_path: Path, prefix: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE.replace("PREFIX", prefix))
    return path


def apply(address: str, *words: str, stdin: str = "") -> Done:
    return ottla(address, "apply", *words, stdin=stdin)


def test_a_file_is_applied_and_drift_is_noticed(address: str, file: Path, prefix: str) -> None:
    rehearsed = apply(address, str(file), "--dry-run")
    assert (rehearsed.code, len(rehearsed.out.splitlines())) == (3, 8), rehearsed.err
    applied = apply(address, str(file))
    assert (applied.code, applied.out) == (0, rehearsed.out), applied.err
    again = apply(address, str(file), "--dry-run")
    assert (again.code, again.out) == (0, ""), again.err

    orders = f"{prefix}-orders"
    assert ottla(address, "configs", "set", "topic", orders, "retention.ms=5", "segment.ms=7000").code == 0
    assert ottla(address, "topics", "alter", f"{prefix}-payments", "--partitions", "3").code == 0
    drifted = apply(address, str(file), "--dry-run")
    assert (drifted.code, drifted.out.splitlines()) == (
        1,
        [
            f"!\ttopic\t{prefix}-payments\t3 partitions\t2 partitions",
            f"~\tsetting\ttopic {orders}: retention.ms\t5\t86400000",
        ],
    )
    assert "topics cannot shrink" in drifted.err
    refused = apply(address, str(file))
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert apply(address, str(file), "--dry-run").out == drifted.out  # nothing was changed
    file.write_text(file.read_text().replace("-payments}", "-payments, partitions: 5}"))
    mended = apply(address, str(file))
    assert (mended.code, len(mended.out.splitlines())) == (0, 2), mended.err
    assert apply(address, str(file), "--dry-run").code == 0


def test_an_export_matches_the_cluster(address: str, file: Path) -> None:
    assert apply(address, str(file)).code == 0
    exported = apply(address, "--export")
    assert (exported.code, exported.err) == (0, "")
    assert "consumer.session.timeout.ms: 50000" in exported.out
    compared = apply(address, "-", "--dry-run", "--prune", stdin=exported.out)
    assert (compared.code, compared.out) == (0, ""), compared.err


def test_changes_that_brokers_would_refuse_are_found_before_any_change(address: str, prefix: str) -> None:
    text = f"""\
topics:
- {{name: {prefix}-good}}
- {{name: {prefix}-bad, settings: {{retention.ms: soon}}}}
- {{name: {prefix}-far, replication_factor: 9}}
- {{name: __consumer_offsets, partitions: 3}}
brokers:
- {{broker: 99, settings: {{num.io.threads: 9}}}}
- {{broker: 1, settings: {{log.dirs: /tmp, num.io.threads: 0}}}}
users:
- {{user: {prefix}, mechanism: SCRAM-SHA-512, iterations: 8192}}
"""
    refused = apply(address, "-", stdin=text)
    assert refused.code == 1
    assert sorted(line.split("\t")[:3] for line in refused.out.splitlines()) == sorted(
        [
            ["!", "topic", "__consumer_offsets"],
            ["!", "broker", "99"],
            ["!", "setting", "broker 1: log.dirs"],
            ["+", "topic", f"{prefix}-good"],
            ["!", "topic", f"{prefix}-bad"],
            ["!", "topic", f"{prefix}-far"],
            ["!", "setting", "broker 1: num.io.threads"],
            ["!", "user", f"{prefix} SCRAM-SHA-512"],
        ]
    )
    for words in (
        "Invalid value soon",
        "replication factor of 9",
        "cluster's own",
        "broker 99",
        "log.dirs is read when",
    ):
        assert words in refused.err
    assert (f"ottla users add {prefix}" in refused.err, "num.io.threads" in refused.err) == (True, True)
    with Peer(address) as peer:
        assert f"{prefix}-good" not in peer.topic_names()


@pytest.mark.needs_ottla
def test_objects_missing_in_the_file_are_deleted_only_with_prune(address: str, file: Path, prefix: str) -> None:
    with Peer(address) as peer:
        peer.create_topic(f"{prefix}-besides", 1)
        peer.create_topic("_service", 1)
    kept = apply(address, str(file))
    assert (kept.code, "left alone, --prune removes it: topics: " in kept.err) == (0, True)
    unsure = apply(address, str(file), "--prune")
    assert (unsure.code, unsure.out, "add --yes" in unsure.err) == (2, "", True)
    pruned = apply(address, str(file), "--prune", "--yes", "--json")
    told = json.loads(pruned.out)
    assert (pruned.code, told["applied"], all(change["done"] for change in told["changes"])) == (0, True, True)
    assert [f"{prefix}-besides"] == [change["what"] for change in told["changes"] if change["what"].startswith(prefix)]
    with Peer(address) as peer:
        names = set(peer.topic_names())
    assert {"_service", f"{prefix}-orders"} <= names
    assert f"{prefix}-besides" not in names
    assert apply(address, str(file), "--prune", "--dry-run").code == 0


@pytest.mark.needs_ottla
def test_schemas_are_registered_and_drift_is_noticed(address: str, tmp_path: Path, prefix: str) -> None:
    node = RegistryNode(address, prefix)
    registry = ("--registry", node.url)
    file = tmp_path / "schemas.yaml"
    (tmp_path / "order.avsc").write_text(ORDER)
    file.write_text(
        'schemas:\n- {subject: bill, text: \'{"type":"array","items":"Order"}\', '
        "references: [{name: Order, subject: orders-value, version: 1}]}\n"
        "- {subject: orders-value, file: order.avsc, compatibility: FULL}\n"
    )
    try:
        applied = apply(address, str(file), *registry)
        assert (applied.code, applied.out) == (
            0,
            "+\tschema\torders-value\t\tavro schema, FULL\n+\tschema\tbill\t\tavro schema\n",
        ), applied.err
        assert apply(address, str(file), *registry, "--dry-run", "--prune").code == 0
        exported = apply(address, "--export", *registry)
        compared = apply(address, "-", *registry, "--dry-run", "--prune", stdin=exported.out)
        assert (compared.code, compared.out) == (0, ""), compared.err
        # By hand: a newer version. A registry does not go back, and the file does not pretend that it could.
        node.ask("POST", "/subjects/orders-value/versions", {"schema": MORE})
        behind = apply(address, str(file), *registry)
        assert (behind.code, "a registry cannot revert" in behind.err) == (1, True)
        (tmp_path / "order.avsc").write_text(MORE)
        node.ask("PUT", "/config/orders-value", {"compatibility": "NONE"})
        mended = apply(address, str(file), *registry)
        assert (mended.code, mended.out) == (0, "~\tschema\torders-value\tNONE\tFULL\n"), mended.err
        # What does not fit is known before; with the level that lets it in, in one file, it fits.
        (tmp_path / "order.avsc").write_text(ORDER.replace("item", "thing"))
        unfit = apply(address, str(file), *registry)
        assert (unfit.code, "does not fit version 2 (level: FULL)" in unfit.err) == (1, True)
        file.write_text("schemas:\n- {subject: orders-value, file: order.avsc, compatibility: NONE}\n")
        assert apply(address, str(file), *registry).code == 0
        assert node.ask("GET", "/subjects/orders-value/versions")[1] == [1, 2, 3]
        pruned = apply(address, str(file), *registry, "--prune", "--yes")
        assert (pruned.code, pruned.out) == (0, "-\tschema\tbill\t\t\n"), pruned.err
    finally:
        node.stop()


@pytest.mark.needs_ottla
def test_a_failure_in_the_middle_reports_the_changes_and_a_second_run_continues(
    address: str, tmp_path: Path, prefix: str
) -> None:
    """A schema cannot be judged before the one that it refers to is there: the registry refuses it in the middle."""
    node = RegistryNode(address, prefix)
    file = tmp_path / "schemas.yaml"
    wrong = '\'{"type":"array","items":"Nothing"}\''
    file.write_text(
        f"topics:\n- {{name: {prefix}-a}}\nschemas:\n- {{subject: orders-value, text: '{ORDER}'}}\n"
        f"- {{subject: bill, text: {wrong}, references: [{{name: Order, subject: orders-value, version: 1}}]}}\n"
    )
    try:
        stopped = apply(address, str(file), "--registry", node.url)
        assert (stopped.code, stopped.out) == (1, "+\tschema\torders-value\t\tavro schema\n"), stopped.err
        assert "stopped at schema bill" in stopped.err
        assert "1 of 3 changes are made. Apply the file again to continue; not made:" in stopped.err
        assert f"\n  + schema bill\n  + topic {prefix}-a\n" in stopped.err
        file.write_text(file.read_text().replace("Nothing", "Order"))
        gone_on = apply(address, str(file), "--registry", node.url)
        assert (gone_on.code, len(gone_on.out.splitlines())) == (0, 2), gone_on.err
    finally:
        node.stop()


@pytest.mark.needs_ottla
def test_a_thousand_topics_without_a_change_take_seconds(broker: Broker, tmp_path: Path, prefix: str) -> None:
    """Measured in processor time of both sides, which a busy machine does not change."""
    file = tmp_path / "thousand.yaml"
    settings = "{retention.ms: 86400000, cleanup.policy: delete}"
    names = [f"{prefix}-{number}" for number in range(THOUSAND)]
    file.write_text(
        "topics:\n"
        + "".join(f"- {{name: {name}, partitions: 1, replication_factor: 1, settings: {settings}}}\n" for name in names)
    )
    assert len(apply(broker.bootstrap, str(file)).out.splitlines()) == THOUSAND
    before = _cpu_seconds(broker.pid) + _children_seconds()
    words = ["apply", str(file), "--dry-run", "--bootstrap-server", broker.bootstrap]
    done = subprocess.run([*ottla_command(), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    taken = _cpu_seconds(broker.pid) + _children_seconds() - before
    assert taken <= CPU_SECONDS_MAX, f"{taken:.2f} s"
    assert apply(broker.bootstrap, "-", "--prune", "--yes", stdin="topics: []\n").code == 0


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
