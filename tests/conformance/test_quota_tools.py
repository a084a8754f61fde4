"""Quotas by tools: kafka-configs.sh beside Apache Kafka's own, `ottla quotas`, and `ottla security` with its file."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from tests.conformance.conftest import ALL_RIGHTS, broker_of_module
from tests.conformance.java_tools import JavaTools
from tests.conformance.waiting import eventually
from tests.conftest import Broker

from ottla import testing
from ottla.cli.kafka_scripts import run_script
from ottla.cli.main import main

TOOL = "kafka-configs.sh"

# One after the other: all of them by Java's tool, then all of them by ours. Nothing is left at the end.
ALTERING = [
    "--alter --user tool-u --add-config producer_byte_rate=10485760,consumer_byte_rate=1024",
    "--alter --entity-type users --entity-name tool-u --add-config request_percentage=12.5",
    "--alter --user tool-u --client tool-c --add-config producer_byte_rate=5",
    (
        "--alter --entity-type clients --entity-name tool-c --entity-type users --entity-name tool-u "
        "--add-config consumer_byte_rate=1e8"
    ),
    (
        "--alter --entity-type users --entity-name tool-u --entity-type clients --entity-default "
        "--add-config controller_mutation_rate=0.5"
    ),
    "--alter --client tool-c --add-config producer_byte_rate=7,request_percentage=200",
    "--describe --user tool-u",
    "--describe --entity-type users --entity-name tool-u --entity-type clients",
    "--describe --user tool-u --client tool-c",
    "--describe --client tool-c",
    "--describe --client tool-nobody",
    "--describe --all --entity-type users --entity-name tool-u",
    "--alter --user tool-u --delete-config producer_byte_rate --add-config consumer_byte_rate=2048",
    "--alter --user tool-u --delete-config producer_byte_rate",
    "--describe --user tool-u",
    "--alter --user tool-u --add-config producer_byte_rate=abc",
    "--alter --user tool-u --add-config producer_byte_rate=1_000",
    "--alter --user tool-u --add-config producer_byte_rate=-1",
    "--alter --user tool-u --add-config producer_byte_rate=0",
    "--alter --user tool-u --add-config producer_byte_rate=1.5",
    "--alter --user tool-u --add-config producer_byte_rate=NaN",
    "--alter --user tool-u --add-config producer_byte_rate=1e300",
    "--alter --user tool-u --add-config request_percentage=Infinity",
    "--alter --user tool-u --add-config nonsense=1",
    "--alter --user tool-u --add-config connection_creation_rate=1",
    "--alter --client tool-c --add-config SCRAM-SHA-256=[password=x]",
    "--alter --user tool-u --add-config producer_byte_rate=1,SCRAM-SHA-256=[password=x]",
    "--alter --ip 10.0.0.7 --add-config producer_byte_rate=1",
    "--alter --ip 10.0.0.7 --add-config connection_creation_rate=1.5",
    "--alter --ip 10.0.0.7 --add-config connection_creation_rate=15",
    "--describe --ip 10.0.0.7",
    "--alter --ip 10.0.0.7 --delete-config connection_creation_rate",
    "--alter --ip no.such.host.invalid --add-config connection_creation_rate=1",
    "--alter --ip-defaults --add-config connection_creation_rate=15",
    "--describe --entity-type ips",
    "--alter --entity-type ips --entity-default --delete-config connection_creation_rate",
    "--alter --user-defaults --add-config producer_byte_rate=77",
    "--alter --user-defaults --client-defaults --add-config producer_byte_rate=78",
    "--alter --client-defaults --add-config producer_byte_rate=79",
    "--describe --user-defaults",
    "--describe --client-defaults",
    "--describe --user-defaults --client-defaults",
    "--describe --entity-type users --entity-default",
    "--alter --user-defaults --delete-config producer_byte_rate",
    "--alter --user-defaults --client-defaults --delete-config producer_byte_rate",
    "--alter --client-defaults --delete-config producer_byte_rate",
    "--describe --user-defaults",
    "--alter --user tool-u --client tool-c --delete-config producer_byte_rate,consumer_byte_rate",
    "--alter --user tool-u --client-defaults --delete-config controller_mutation_rate",
    "--alter --client tool-c --delete-config producer_byte_rate,request_percentage",
    "--alter --user tool-u --delete-config consumer_byte_rate,request_percentage",
    "--describe --user tool-u",
    "--describe --ip 10.0.0.7 --user tool-u",
    "--alter --user tool-u --client-defaults --delete-config nothing",
    "--alter --user tool-u --delete-config nothing",
]
# The same state, seen by both: the order of lines is Java's.
SEEN_ALIKE = [
    "--describe --entity-type users",
    "--describe --entity-type clients",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type users --entity-name many-3 --entity-type clients",
    "--describe --entity-type ips",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    yield from broker_of_module(tmp_path_factory, ALL_RIGHTS)


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run(body: Callable[[], int], stdin: str = "") -> Done:
    """A tool in this process: starting one for each command would cost more than the test is worth."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = body()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdin = before
    return Done(code, out.getvalue(), err.getvalue())


def script(address: str, words: str) -> Done:
    return run(lambda: run_script(TOOL, ["--bootstrap-server", address, *words.split()]))


def ottla(address: str, *words: str, stdin: str = "") -> Done:
    return run(lambda: main([*words, "--bootstrap-server", address]), stdin)


def complaint(error: str) -> str:
    """Java's tools go on with a stack trace; the first line may only repeat the command."""
    lines = error.splitlines()
    is_repeated = bool(lines) and lines[0].startswith("Error while executing config command")
    return "\n".join(lines[: 2 if is_repeated else 1])


def test_kafka_configs_prints_what_javas_prints(address: str, java: JavaTools) -> None:
    wanted = [java.run(TOOL, "--bootstrap-server", address, *command.split()) for command in ALTERING]
    got = [script(address, command) for command in ALTERING]
    for command, theirs, mine in zip(ALTERING, wanted, got, strict=True):
        assert mine._replace(err=complaint(mine.err)) == (theirs.code, theirs.out, complaint(theirs.err)), command


def test_all_quotas_are_listed_in_javas_order(address: str, java: JavaTools) -> None:
    quotas = [f"- {{user: many-{number}, producer_byte_rate: {number}0000000}}" for number in range(1, 30)]
    quotas += [f"- {{user: many-3, client: app-{number}, request_percentage: {number}}}" for number in range(1, 9)]
    quotas += [f"- {{client: app-{number}, consumer_byte_rate: 1, producer_byte_rate: 2}}" for number in range(1, 9)]
    quotas += ["- {user-defaults: true, client-defaults: true, producer_byte_rate: 1, consumer_byte_rate: 2}"]
    quotas += [f"- {{ip: 10.0.0.{number}, connection_creation_rate: 2}}" for number in range(1, 9)]
    file = "quotas:\n" + "\n".join(quotas) + "\n"
    assert ottla(address, "security", "apply", "-", stdin=file).code == 0
    try:
        for command in SEEN_ALIKE:
            theirs = java.run(TOOL, "--bootstrap-server", address, *command.split())
            assert script(address, command) == tuple(theirs)
    finally:
        assert ottla(address, "security", "apply", "-", "--prune", stdin="quotas: []\n").code == 0
    assert script(address, "--describe --entity-type users --entity-type clients").out == ""


def test_ottla_quotas_sets_lists_and_removes(address: str) -> None:
    entity = ("--user", "ottla-u", "--client-defaults")
    done = ottla(address, "quotas", "set", *entity, "producer_byte_rate=1000000", "request_percentage=12.5")
    assert (done.code, done.out) == (
        0,
        "Set for user ottla-u, each client: producer_byte_rate=1000000, request_percentage=12.5\n",
    )
    listed = ottla(address, "quotas", "list", "--user", "ottla-u").out.splitlines()
    assert listed == [
        "ottla-u\t<default>\t-\tproducer_byte_rate\t1000000",
        "ottla-u\t<default>\t-\trequest_percentage\t12.5",
    ]
    found = json.loads(ottla(address, "quotas", "list", "--json", "--user", "ottla-u").out)
    assert found == [
        {"user": "ottla-u", "client-defaults": True, "producer_byte_rate": 1000000.0, "request_percentage": 12.5}
    ]
    assert ottla(address, "quotas", "remove", *entity, "consumer_byte_rate").code == 1
    assert ottla(address, "quotas", "remove", *entity).code == 0
    assert ottla(address, "quotas", "list", "--user", "ottla-u").out == ""
    gone = ottla(address, "quotas", "remove", *entity)
    assert (gone.code, gone.err) == (
        1,
        "ottla quotas: user ottla-u, each client has no limit: ottla quotas list\n",
    )
    wrong = ottla(address, "quotas", "set", "--user", "u", "producer_byte_rat=1")
    assert (wrong.code, "did you mean producer_byte_rate?" in wrong.err) == (2, True)


def test_a_file_is_applied_compared_and_written_again(address: str, tmp_path: Path) -> None:
    file = tmp_path / "security.yaml"
    hashed = hashed_user("file-alice", tmp_path)
    file.write_text(
        f"users:\n{hashed}rights:\n- {{allow: 'User:file-alice', operation: [read, describe], topic: file-orders}}\n"
        "quotas:\n- {user: file-alice, client: app, producer_byte_rate: 1000000}\n"
    )
    file.chmod(0o600)
    rehearsed = ottla(address, "security", "apply", str(file), "--dry-run")
    assert (rehearsed.code, len(rehearsed.out.splitlines())) == (3, 4)
    applied = ottla(address, "security", "apply", str(file))
    assert (applied.code, applied.out) == (0, rehearsed.out), applied.err
    again = ottla(address, "security", "apply", str(file), "--dry-run")
    assert (again.code, again.out) == (0, ""), again.err
    exported = ottla(address, "security", "export")
    assert exported.code == 0
    assert "- {user: file-alice, mechanism: SCRAM-SHA-512, iterations: 8192}\n" in exported.out
    assert "salted" not in exported.out
    everything = ottla(address, "security", "apply", "-", "--dry-run", "--prune", stdin=exported.out)
    assert (everything.code, everything.out) == (0, ""), everything.err
    less = "".join(line for line in exported.out.splitlines(True) if "file-alice" not in line or "user:" in line)
    pruned = ottla(address, "security", "apply", "-", "--prune", stdin=without(less, "client: app"))
    assert (pruned.code, len(pruned.out.splitlines())) == (0, 3), pruned.err
    last = ottla(address, "security", "apply", "-", "--prune", stdin=without(exported.out, "file-alice"))
    assert last.out == "-\tuser\tfile-alice SCRAM-SHA-512\t8192 iterations\t\n"
    wrong = ottla(address, "security", "apply", "-", stdin="quotas:\n- {user: a, producer_byte_rate: -1}\n")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "<stdin>:2: quotas, 1, producer_byte_rate: producer_byte_rate=-1 is not" in wrong.err


@pytest.mark.needs_ottla
def test_top_and_suggest_name_throttled_clients_and_their_rules() -> None:
    quotas = [{"client": "greedy", "producer_byte_rate": 1_000}]
    with testing.broker({"ottla.metrics.port": 0}, topics=["orders"], quotas=quotas) as kafka:
        (url,) = re.findall(r"http://[0-9.]+:[0-9]+", kafka.logs)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "greedy"})
        producer.produce("orders", b"x" * 30_000)
        assert producer.flush(10) == 0

        def shares() -> list[dict[str, object]]:
            done = run(lambda: main(["quotas", "top", "--json", "--interval", "0.1", "--url", url]))
            found: list[dict[str, object]] = json.loads(done.out)["shares"]
            return found

        assert eventually(lambda: bool(shares()))
        (share,) = shares()
        names = ("key", "client_id", "rule", "limit")
        assert [share[name] for name in names] == ["producer_byte_rate", "greedy", "client-id=greedy", 1000.0]
        screen = run(lambda: main(["quotas", "top", "--interval", "0.1", "--url", url])).out.splitlines()
        assert screen[1].split()[:6] == ["1", "producer_byte_rate", "-", "greedy", "client-id=greedy", "1k"]
        server = ["--bootstrap-server", kafka.bootstrap_servers]
        kafka.create_topic("limited", settings={"ottla.quota.fetch.bytes": 5_000_000})
        listed = run(lambda: main(["quotas", "list", "--topics", *server]))
        assert listed.out == "limited\tottla.quota.fetch.bytes\t5000000\n"
        suggested = run(lambda: main(["quotas", "suggest", "--url", url]))
        assert suggested.out.startswith("ottla quotas set --client greedy producer_byte_rate=")
        assert "ottla.quota.mode=observe" in suggested.err
        assert run(lambda: main([*suggested.out.split()[1:], *server])).code == 0


def without(text: str, words: str) -> str:
    """A section stays, empty, after its last entry is deleted."""
    lines = [line for line in text.splitlines() if words not in line]
    following = [*lines[1:], ""]
    return "".join(
        f"{line} []\n" if line.endswith(":") and not after.startswith("-") else f"{line}\n"
        for line, after in zip(lines, following, strict=True)
    )


def hashed_user(user: str, folder: Path) -> str:
    (folder / "password").write_text("secret\n")
    return run(lambda: main(["security", "hash", user, "--password-file", str(folder / "password")])).out
