"""Quotas by tools: kafka-configs.sh beside Apache Kafka's own, `ottla quotas`, and `ottla security` with its file."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import broker_of_module
from conformance.java_tools import JavaTools
from conftest import FOREIGN_BOOTSTRAP, Broker

RUN_SECONDS_MAX = 40
TOOL = "kafka-configs.sh"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# One after the other, by both tools, Java's first, each with names of its own.
ALTERING = [
    "--alter --user TOOL-u --add-config producer_byte_rate=10485760,consumer_byte_rate=1024",
    "--alter --entity-type users --entity-name TOOL-u --add-config request_percentage=12.5",
    "--alter --user TOOL-u --client TOOL-c --add-config producer_byte_rate=5",
    (
        "--alter --entity-type clients --entity-name TOOL-c --entity-type users --entity-name TOOL-u "
        "--add-config consumer_byte_rate=1e8"
    ),
    (
        "--alter --entity-type users --entity-name TOOL-u --entity-type clients --entity-default "
        "--add-config controller_mutation_rate=0.5"
    ),
    "--alter --client TOOL-c --add-config producer_byte_rate=7,request_percentage=200",
    "--describe --user TOOL-u",
    "--describe --entity-type users --entity-name TOOL-u --entity-type clients",
    "--describe --user TOOL-u --client TOOL-c",
    "--describe --client TOOL-c",
    "--describe --client TOOL-nobody",
    "--alter --user TOOL-u --delete-config producer_byte_rate --add-config consumer_byte_rate=2048",
    "--alter --user TOOL-u --delete-config producer_byte_rate",
    "--describe --user TOOL-u",
    "--alter --user TOOL-u --add-config producer_byte_rate=abc",
    "--alter --user TOOL-u --add-config producer_byte_rate=1_000",
    "--alter --user TOOL-u --add-config producer_byte_rate=-1",
    "--alter --user TOOL-u --add-config producer_byte_rate=0",
    "--alter --user TOOL-u --add-config producer_byte_rate=1.5",
    "--alter --user TOOL-u --add-config producer_byte_rate=NaN",
    "--alter --user TOOL-u --add-config producer_byte_rate=1e300",
    "--alter --user TOOL-u --add-config request_percentage=Infinity",
    "--alter --user TOOL-u --add-config nonsense=1",
    "--alter --user TOOL-u --add-config connection_creation_rate=1",
    "--alter --client TOOL-c --add-config SCRAM-SHA-256=[password=x]",
    "--alter --user TOOL-u --add-config producer_byte_rate=1,SCRAM-SHA-256=[password=x]",
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
    "--alter --user TOOL-u --client TOOL-c --delete-config producer_byte_rate,consumer_byte_rate",
    "--alter --user TOOL-u --client-defaults --delete-config controller_mutation_rate",
    "--alter --client TOOL-c --delete-config producer_byte_rate,request_percentage",
    "--alter --user TOOL-u --delete-config consumer_byte_rate,request_percentage",
    "--describe --user TOOL-u",
    "--describe --ip 10.0.0.7 --user TOOL-u",
    "--alter --user TOOL-u --client-defaults --delete-config nothing",
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
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    yield from broker_of_module(tmp_path_factory, settings)


@pytest.fixture(scope="module")
def address(broker: Broker | None) -> str:
    return broker.bootstrap if broker is not None else FOREIGN_BOOTSTRAP


@pytest.fixture(scope="module")
def java(kafka_jars: Path) -> Iterator[JavaTools]:
    with JavaTools(kafka_jars) as tools:
        yield tools


def script(address: str, words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", TOOL, "--bootstrap-server", address, *words.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


def ottla(address: str, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", *words, "--bootstrap-server", address]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


def complaint(error: str) -> list[str]:
    """Java's tools go on with a stack trace; the first line may only repeat the command."""
    lines = error.splitlines()
    return lines[:2] if lines and lines[0].startswith("Error while executing config command") else lines[:1]


def test_kafka_configs_prints_what_javas_prints(address: str, java: JavaTools) -> None:
    differing = []
    for command in ALTERING:
        theirs = java.run(TOOL, "--bootstrap-server", address, *command.replace("TOOL", "java").split())
        mine = script(address, command.replace("TOOL", "mine"))
        wanted = (theirs.code, theirs.out.replace("java-", "mine-"), complaint(theirs.err.replace("java-", "mine-")))
        got = (mine.returncode, mine.stdout, complaint(mine.stderr))
        if wanted != got:
            differing.append(f"{command}\n  {wanted}\n  {got}")
    assert not differing, "\n".join(differing)


def test_all_quotas_are_listed_in_javas_order(address: str, java: JavaTools) -> None:
    quotas = [f"- {{user: many-{number}, producer_byte_rate: {number}0000000}}" for number in range(1, 30)]
    quotas += [f"- {{user: many-3, client: app-{number}, request_percentage: {number}}}" for number in range(1, 9)]
    quotas += [f"- {{client: app-{number}, consumer_byte_rate: 1, producer_byte_rate: 2}}" for number in range(1, 9)]
    quotas += ["- {user-defaults: true, client-defaults: true, producer_byte_rate: 1, consumer_byte_rate: 2}"]
    quotas += [f"- {{ip: 10.0.0.{number}, connection_creation_rate: 2}}" for number in range(1, 9)]
    file = "quotas:\n" + "\n".join(quotas) + "\n"
    assert ottla(address, "security", "apply", "-", stdin=file).returncode == 0
    try:
        for command in SEEN_ALIKE:
            theirs = java.run(TOOL, "--bootstrap-server", address, *command.split())
            mine = script(address, command)
            assert (mine.returncode, mine.stdout, mine.stderr) == (theirs.code, theirs.out, theirs.err)
    finally:
        assert ottla(address, "security", "apply", "-", "--prune", stdin="quotas: []\n").returncode == 0
    assert script(address, "--describe --entity-type users --entity-type clients").stdout == ""


def test_ottla_quotas_sets_lists_and_removes(address: str) -> None:
    entity = ("--user", "ottla-u", "--client-defaults")
    done = ottla(address, "quotas", "set", *entity, "producer_byte_rate=1000000", "request_percentage=12.5")
    assert (done.returncode, done.stdout) == (
        0,
        "Set for user ottla-u, each client: producer_byte_rate=1000000, request_percentage=12.5\n",
    )
    listed = ottla(address, "quotas", "list", "--user", "ottla-u").stdout.splitlines()
    assert listed == [
        "ottla-u\t<default>\t-\tproducer_byte_rate\t1000000",
        "ottla-u\t<default>\t-\trequest_percentage\t12.5",
    ]
    found = json.loads(ottla(address, "quotas", "list", "--json", "--user", "ottla-u").stdout)
    assert found == [
        {"user": "ottla-u", "client-defaults": True, "producer_byte_rate": 1000000.0, "request_percentage": 12.5}
    ]
    assert ottla(address, "quotas", "remove", *entity, "consumer_byte_rate").returncode == 1
    assert ottla(address, "quotas", "remove", *entity).returncode == 0
    assert ottla(address, "quotas", "list", "--user", "ottla-u").stdout == ""
    gone = ottla(address, "quotas", "remove", *entity)
    assert (gone.returncode, gone.stderr) == (
        1,
        "ottla quotas: there is no limit of user ottla-u, each client: ottla quotas list\n",
    )
    wrong = ottla(address, "quotas", "set", "--user", "u", "producer_byte_rat=1")
    assert (wrong.returncode, "did you mean producer_byte_rate?" in wrong.stderr) == (2, True)


def test_a_file_is_applied_compared_and_written_again(address: str, tmp_path: Path) -> None:
    file = tmp_path / "security.yaml"
    hashed = ottla_hash("file-alice")
    file.write_text(
        f"users:\n{hashed}rights:\n- {{allow: 'User:file-alice', operation: [read, describe], topic: file-orders}}\n"
        "quotas:\n- {user: file-alice, client: app, producer_byte_rate: 1000000}\n"
    )
    file.chmod(0o600)
    rehearsed = ottla(address, "security", "apply", str(file), "--dry-run")
    assert (rehearsed.returncode, len(rehearsed.stdout.splitlines())) == (3, 4)
    applied = ottla(address, "security", "apply", str(file))
    assert (applied.returncode, applied.stdout) == (0, rehearsed.stdout), applied.stderr
    again = ottla(address, "security", "apply", str(file), "--dry-run")
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    exported = ottla(address, "security", "export")
    assert exported.returncode == 0
    assert "- {user: file-alice, mechanism: SCRAM-SHA-512, iterations: 8192}\n" in exported.stdout
    assert "salted" not in exported.stdout
    everything = ottla(address, "security", "apply", "-", "--dry-run", "--prune", stdin=exported.stdout)
    assert (everything.returncode, everything.stdout) == (0, ""), everything.stderr
    less = "".join(line for line in exported.stdout.splitlines(True) if "file-alice" not in line or "user:" in line)
    pruned = ottla(address, "security", "apply", "-", "--prune", stdin=without(less, "client: app"))
    assert (pruned.returncode, len(pruned.stdout.splitlines())) == (0, 3), pruned.stderr
    users = "".join(line for line in exported.stdout.splitlines(True) if "file-alice" not in line)
    last = ottla(address, "security", "apply", "-", "--prune", stdin=users)
    assert last.stdout == "-\tuser\tfile-alice SCRAM-SHA-512\t8192 iterations\t\n"
    wrong = ottla(address, "security", "apply", "-", stdin="quotas:\n- {user: a, producer_byte_rate: -1}\n")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "<stdin>:2: quotas, 1, producer_byte_rate: producer_byte_rate=-1 is not" in wrong.stderr


def without(text: str, words: str) -> str:
    """Sections whose last entry is gone are still there, and empty."""
    lines = [line for line in text.splitlines() if words not in line]
    following = [*lines[1:], ""]
    return "".join(
        f"{line} []\n" if line.endswith(":") and not after.startswith("-") else f"{line}\n"
        for line, after in zip(lines, following, strict=True)
    )


def ottla_hash(user: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", "security", "hash", user, "--password-file", "/dev/stdin"]
    return subprocess.run(command, input="secret\n", capture_output=True, text=True, check=True).stdout
