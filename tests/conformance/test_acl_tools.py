"""Access rules by other people's hands: confluent-kafka's AdminClient, and kafka-acls.sh beside Apache Kafka's own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.conformance.conftest import ALL_RIGHTS, AUTHORIZER, broker_of_module
from tests.conformance.java_tools import JavaTools
from tests.conformance.waiting import eventually
from tests.conftest import Broker

RUN_SECONDS_MAX = 40
TOOL = "kafka-acls.sh"
JAVA_ENDS = "Error while executing ACL command: null"  # only said because the tool may not end the JVM here
ANY = (None, None, AclOperation.ANY, AclPermissionType.ANY)
EVERYTHING = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, *ANY)

# One after the other: each is run by both tools, Java's first, on a broker without rules at the beginning.
COMMANDS = [
    "--list",
    "--add --allow-principal User:alice --operation Read --topic TOOL-orders",
    "--add --allow-principal User:alice --operation Read --topic TOOL-orders",
    "--add --deny-principal User:bob --deny-host 10.0.0.1 --operation Write --topic TOOL-orders",
    "--add --allow-principal User:TOOL-p --producer --idempotent --topic TOOL-orders --transactional-id TOOL-t",
    "--add --allow-principal User:carol --consumer --topic TOOL-c --group TOOL-g --resource-pattern-type prefixed",
    "--add --allow-principal User:alice --topic TOOL-all",
    "--list --topic TOOL-orders",
    "--list --topic TOOL-orders --principal User:alice",
    "--list --topic TOOL-clicks --resource-pattern-type match",
    "--list --group TOOL-g --resource-pattern-type any",
    "--remove --allow-principal User:alice --operation Read --topic TOOL-orders --force",
    "--remove --topic TOOL-orders --force",
    "--remove --topic TOOL-clicks --resource-pattern-type match --force",
    "--remove --group TOOL-g --resource-pattern-type prefixed --force",
    "--remove --transactional-id TOOL-t --force",
    "--remove --topic TOOL-all --force",
    "--remove --cluster --allow-principal User:TOOL-p --operation IdempotentWrite --force",
    "--list --topic TOOL-orders",
    "--add --allow-principal alice --operation Read --topic TOOL-orders",
    "--add --operation Read --topic TOOL-orders",
    "--add --allow-principal User:alice",
    "--add --allow-principal User:alice --topic TOOL-orders --resource-pattern-type any",
    "--add --allow-principal User:alice --topic TOOL-orders --resource-pattern-type nonsense",
    "--add --list",
    "",
    "--list --allow-principal User:alice",
    "--add --producer --allow-principal User:alice",
    "--add --producer --operation Read --topic TOOL-orders",
    "--add --idempotent --allow-principal User:alice --topic TOOL-orders",
    "--add --consumer --allow-principal User:alice --topic TOOL-orders",
    "--add --principal User:alice --topic TOOL-orders",
    "--list --bogus",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    yield from broker_of_module(tmp_path_factory, ALL_RIGHTS)


def binding(name: str, kind: ResourcePatternType, who: str, permission: AclPermissionType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, kind, who, "*", AclOperation.READ, permission)


def test_an_admin_client_gives_shows_and_takes_rules(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    literal = binding("confluent-orders", ResourcePatternType.LITERAL, "User:alice", AclPermissionType.ALLOW)
    prefixed = binding("confluent-", ResourcePatternType.PREFIXED, "User:bob", AclPermissionType.DENY)
    for created in admin.create_acls([literal, prefixed]).values():
        assert created.result() is None
    assert {literal, prefixed} <= set(admin.describe_acls(EVERYTHING).result())
    match = AclBindingFilter(ResourceType.TOPIC, "confluent-orders", ResourcePatternType.MATCH, *ANY)
    assert set(admin.describe_acls(match).result()) == {literal, prefixed}
    exactly = AclBindingFilter(ResourceType.TOPIC, "confluent-orders", ResourcePatternType.LITERAL, *ANY)
    assert [each.result() for each in admin.delete_acls([exactly]).values()] == [[literal]]
    assert admin.describe_acls(match).result() == [prefixed]
    assert [each.result() for each in admin.delete_acls([match]).values()] == [[prefixed]]


def test_bad_rules_are_refused_one_by_one(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    wrong = AclBinding(
        ResourceType.BROKER,
        "not-the-cluster",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (created,) = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException, match="The only valid name for the CLUSTER resource is kafka-cluster"):
        created.result()


def lines(text: str) -> list[str]:
    """Java's sets have another order in each run. Of a failure only the first line counts: a stack trace follows."""
    first, *others = text.splitlines() or [""]
    if first == JAVA_ENDS:
        return [""]
    return [first] if first.startswith("Error while executing") else sorted([first.strip(), *map(str.strip, others)])


def ours(words: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", TOOL, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


def test_kafka_acls_prints_what_javas_prints(address: str, java: JavaTools) -> None:
    """Each has names of its own, so that one does not see what the other did."""
    differing = []
    for command in COMMANDS:
        servers = ["--bootstrap-server", address]
        theirs = java.run(TOOL, *servers, *command.replace("TOOL", "java").split())
        mine = ours([*servers, *command.replace("TOOL", "mine").split()])
        out = lines(theirs.out.replace("java-", "mine-"))
        error = theirs.err.splitlines()[:1]
        if (theirs.code, out, error) != (mine.returncode, lines(mine.stdout), mine.stderr.splitlines()[:1]):
            differing.append(
                f"{command}\n  {theirs.code} {out} {error}\n  {mine.returncode} {mine.stdout} {mine.stderr}"
            )
    assert not differing, "\n".join(differing)


def run_ottla(address: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "acls", *words, "--bootstrap-server", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


def test_ottla_acls_explains_what_it_can_change(address: str) -> None:
    question = ("explain", "--principal", "User:dora", "--operation", "read", "--topic", "explained", "--json")
    denied = json.loads(run_ottla(address, *question).stdout)
    assert (denied["allowed"], denied["because"]) == (False, "no rule allows it")
    (command,) = denied["commands"]
    assert command == "ottla acls add --allow User:dora --operation read --topic explained"
    assert run_ottla(address, *command.split()[2:]).returncode == 0
    allowed = json.loads(run_ottla(address, *question).stdout)
    assert (allowed["allowed"], allowed["because"]) == (True, "User:dora may read topic explained")
    assert run_ottla(address, *allowed["commands"][0].split()[2:]).returncode == 0
    assert run_ottla(address, "list", "--topic", "explained", "--json").stdout == "[]\n"
    wrong = run_ottla(address, "add", "--allow", "User:dora", "--operation", "fly", "--topic", "explained")
    assert (wrong.returncode, "there is no operation 'fly'" in wrong.stderr) == (2, True)


@pytest.mark.needs_ottla
def test_without_an_authorizer_there_are_no_rules(broker_factory: Callable[..., Broker]) -> None:
    bootstrap = broker_factory().bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = binding("orders", ResourcePatternType.LITERAL, "User:alice", AclPermissionType.ALLOW)
    (created,) = admin.create_acls([wanted]).values()
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        created.result()
    listed = ours(["--bootstrap-server", bootstrap, "--list"])
    assert listed.returncode == 1
    assert listed.stdout.startswith(
        "Error while executing ACL command: org.apache.kafka.common.errors.SecurityDisabledException: "
        "No Authorizer is configured on the broker"
    )


@pytest.mark.needs_ottla
def test_a_dry_run_allows_everything_and_reports_missing_rules(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = broker_factory(
        authorizer_class_name=AUTHORIZER, ottla_authorizer_mode="permissive", ottla_log_dir=str(tmp_path / "logs")
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    failures: list[object] = []
    producer.produce("rehearsed", b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(RUN_SECONDS_MAX)
    assert failures == [None]
    log = tmp_path / "logs" / "kafka-authorizer.log"
    wanted = [
        "ottla acls add --allow User:ANONYMOUS --operation write --topic rehearsed",
        "ottla acls add --allow User:ANONYMOUS --operation create --topic rehearsed",
    ]
    command = [sys.executable, "-m", "ottla.cli.main", "acls", "suggest", str(log)]

    def suggested() -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    assert eventually(lambda: suggested() == wanted), suggested()


@pytest.mark.needs_ottla
def test_rules_outlive_a_kill(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    servers = ["--bootstrap-server", broker.bootstrap]
    names = ("orders", "a/b", "..", "ünï cödé")  # not all of them could be the names of nodes
    for name in names:
        assert ours([*servers, "--add", "--allow-principal", "User:alice", "--group", name]).returncode == 0
    before = ours([*servers, "--list"]).stdout
    broker.kill9()
    broker.start()
    assert ours([*servers, "--list"]).stdout == before
    assert all(f"name={name}, " in before for name in names)
