"""The checks of the doctor: each one finds its problem, and a healthy cluster has no findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerCapacity, PartitionLoad
from ottla.base.security import Operation
from ottla.cli.commands import doctor
from ottla.cli.metadata.zookeeper_checks import ZooKeeperState, compare_with_brokers, read_healing
from ottla.client.addresses import Address
from ottla.client.admin import Partition, Topic
from ottla.client.configs import Config, Source
from ottla.client.errors import error_from_code
from ottla.client.groups import Group, Member
from ottla.client.log_dirs import LogDir
from ottla.client.reassignments import Reassignment
from ottla.controller.self_balancing.heal_state import HealJournal
from ottla.controller.self_balancing.journals import ReplicaMove
from ottla.controller.stores.store import Node
from ottla.operations.doctor.authorized_operations import (
    GroupAuthorization,
    TopicAuthorization,
    group_findings,
    topic_findings,
)
from ottla.operations.doctor.checks import diagnose
from ottla.operations.doctor.cluster_facts import BrokerFacts, ClusterFacts, FactReader, GroupFacts, is_unknown_setting
from ottla.operations.doctor.failure_cases import CASES, recognize_cases
from ottla.operations.doctor.findings import Finding, Severity, shorten_list
from ottla.operations.doctor.login_failures import find_login_fault
from ottla.operations.doctor.metric_checks import (
    check_packet_loss,
    check_throttled_consumers,
    check_uncompiled,
    check_unsupported,
)
from ottla.operations.hanging_transactions import OpenTransaction
from ottla.operations.metric_readings import Reading, parse_metrics
from ottla.operations.quotas import QuotaUse
from ottla.operations.reassignment.cluster_model import ClusterModel, check_all_brokers_live, check_leaders
from ottla.operations.reassignment.plan import PlanError
from ottla.protocol.messages.transactions import ProducerState

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
VERSIONS = {3: (0, 13)}


def broker(number: int, **changed: object) -> BrokerFacts:
    plain = BrokerFacts(number, Address(f"10.0.0.{number}", 9092), None, None, None, (1.0, 2.0), VERSIONS, 1)
    return plain._replace(leaders={ORDERS: (1, 4)})._replace(**changed)  # type: ignore[arg-type]


def config(name: str, value: str) -> Config:
    return Config(name, value, Source.DYNAMIC_TOPIC_CONFIG, False)


def topic(partition: Partition, name: str = "orders", is_internal: bool = False) -> Topic:
    return Topic(name, UUID(int=1), is_internal, [partition])


def healthy(partition: Partition | None = None) -> ClusterFacts:
    """Three brokers and a topic with three replicas, of which two must be in sync."""
    found = partition or Partition(0, 1, [1, 2, 3], [1, 2, 3])
    facts = ClusterFacts(NOW_MS, "cluster")
    facts.brokers = {number: broker(number) for number in (1, 2, 3)}
    facts.topics = [topic(found)]
    facts.partitions_later = {ORDERS: found}
    facts.topic_configs = {"orders": [config("min.insync.replicas", "2")]}
    facts.broker_configs = {number: {"auto.create.topics.enable": "false"} for number in (1, 2, 3)}
    facts.log_dirs = {1: [LogDir("/data", Error.NONE, [], 1000, 900)]}
    return facts


def only(facts: ClusterFacts) -> Finding:
    findings = diagnose(facts)
    assert len(findings) == 1, findings
    return findings[0]


def told(finding: Finding) -> tuple[Severity, str]:
    assert finding.what
    assert finding.cause
    assert finding.cure
    return finding.severity, finding.case


PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE


def test_a_healthy_cluster_has_no_findings() -> None:
    assert diagnose(healthy()) == []


def test_a_partition_without_a_leader() -> None:
    facts = healthy(Partition(0, -1, [1, 2, 3], [1]))
    assert told(only(facts)) == (PROBLEM, "F6")


def test_a_broker_that_is_gone() -> None:
    facts = healthy(Partition(0, 1, [1, 2, 3], [1, 2]))
    del facts.brokers[3]
    assert [told(finding) for finding in diagnose(facts)] == [(PROBLEM, "F6"), (WARNING, "F6")]


def test_a_replica_that_is_behind() -> None:
    facts = healthy(Partition(0, 1, [1, 2, 3], [1, 2]))
    assert told(only(facts)) == (WARNING, "F3")
    facts.reassignments = {ORDERS: Reassignment([1, 2, 3], [3], [])}
    assert told(only(facts)) == (NOTE, "F4"), "while it moves that is as it should be"


def test_too_few_replicas_in_sync_to_write() -> None:
    facts = healthy(Partition(0, 1, [1, 2, 3], [1]))
    assert (PROBLEM, "F7") in [told(finding) for finding in diagnose(facts)]


def test_a_broker_that_cannot_be_reached() -> None:
    facts = healthy()
    refused = "cannot reach 10.0.0.2:9092: connection refused. Is the broker running? Start one with: ottla up"
    facts.brokers[2] = broker(2, problem=refused, leaders=None, versions=None, milliseconds=())
    finding = only(facts)
    assert told(finding) == (PROBLEM, "F5")
    assert finding.what.endswith("connection refused")
    unknown = (
        "cannot reach kafka:9092: the host name kafka is not known. Is the broker running? Start one with: ottla up"
    )
    facts.brokers[2] = facts.brokers[2]._replace(problem=unknown)
    assert told(only(facts)) == (PROBLEM, "F2")


def test_addresses_that_only_this_machine_can_reach() -> None:
    facts = healthy()
    facts.brokers[2] = broker(2, address=Address("127.0.0.1", 9092))
    assert told(only(facts)) == (WARNING, "F5")
    for number in (1, 3):
        facts.brokers[number] = broker(number, address=Address("localhost", 9090 + number))
    assert diagnose(facts) == [], "a cluster on one machine"


def test_no_controller() -> None:
    facts = healthy()
    facts.brokers = {number: broker(number, controller_id=-1) for number in (1, 2, 3)}
    assert told(only(facts)) == (PROBLEM, "F14")
    facts.brokers[1] = broker(1)
    assert told(only(facts)) == (WARNING, "F14")


def test_brokers_that_report_another_leader() -> None:
    facts = healthy()
    facts.brokers[3] = broker(3, leaders={ORDERS: (2, 3)})
    finding = only(facts)
    assert told(finding) == (PROBLEM, "F14")
    assert finding.what.startswith("broker 3 ")
    facts.partitions_later = {ORDERS: Partition(0, 2, [1, 2, 3], [1, 2, 3])}
    assert diagnose(facts) == [], "a change that was under way"


def test_brokers_of_several_versions() -> None:
    facts = healthy()
    facts.brokers[3] = broker(3, versions={3: (0, 12)})
    assert told(only(facts)) == (NOTE, "F13")


def test_slow_brokers() -> None:
    facts = healthy()
    facts.brokers[3] = broker(3, milliseconds=(1.0, 300.0))
    assert told(only(facts)) == (WARNING, "F15")
    facts.brokers[3] = broker(3, milliseconds=(1.0, 3000.0))
    assert told(only(facts)) == (PROBLEM, "F15")


def test_clocks_that_are_ahead() -> None:
    facts = healthy()
    offsets = TopicPartition("__consumer_offsets", 0)
    facts.topics.append(topic(Partition(0, 2, [2, 1, 3], [1, 2, 3]), "__consumer_offsets", is_internal=True))
    facts.topic_configs["__consumer_offsets"] = [config("min.insync.replicas", "2")]
    facts.newest_ms = {ORDERS: NOW_MS - 5, offsets: NOW_MS + 60_000}
    finding = only(facts)
    assert told(finding) == (WARNING, "")
    assert "broker 2 is 60 s ahead" in finding.what
    facts.newest_ms = {ORDERS: NOW_MS + 60_000}
    assert told(only(facts)) == (NOTE, "")


def test_replicas_that_come_and_go() -> None:
    facts = healthy()
    facts.partitions_later = {ORDERS: Partition(0, 1, [1, 2, 3], [1, 2])}
    assert told(only(facts)) == (WARNING, "F20")


def test_leaders_that_are_not_preferred() -> None:
    facts = healthy(Partition(0, 2, [1, 2, 3], [1, 2, 3]))
    facts.brokers = {number: broker(number, leaders={ORDERS: (2, 4)}) for number in (1, 2, 3)}
    assert told(only(facts)) == (NOTE, "")


def test_moves_and_throttles() -> None:
    facts = healthy()
    facts.reassignments = {TopicPartition("x", number): Reassignment([1, 2], [2], [1]) for number in range(100)}
    assert told(only(facts)) == (WARNING, "F4")
    facts.broker_configs[1] = {"leader.replication.throttled.rate": "1000"}
    assert told(only(facts)) == (NOTE, "F4")
    facts.reassignments = {}
    assert told(only(facts)) == (WARNING, "F4"), "a throttle that was left behind"
    facts.broker_configs[1] = {"leader.replication.throttled.rate": str(2**63 - 1)}
    assert diagnose(facts) == []


def test_topics_with_one_replica() -> None:
    facts = healthy(Partition(0, 1, [1], [1]))
    facts.topic_configs = {"orders": [config("min.insync.replicas", "1")]}
    assert told(only(facts)) == (NOTE, "F7")
    facts.topics = [topic(Partition(0, 1, [1], [1]), is_internal=True)]
    assert told(only(facts)) == (WARNING, "F7")
    for number in (2, 3):
        del facts.brokers[number]
    facts.broker_configs = {}
    assert diagnose(facts) == [], "a single broker has no choice"


@pytest.mark.parametrize(("least", "severity"), [("1", NOTE), ("3", WARNING), ("4", WARNING)])
def test_min_isr_that_is_too_low_or_too_high(least: str, severity: Severity) -> None:
    facts = healthy()
    facts.topic_configs = {"orders": [config("min.insync.replicas", least)]}
    assert (severity, "F7") in [told(finding) for finding in diagnose(facts)]


def test_unclean_elections_that_are_allowed() -> None:
    facts = healthy()
    facts.topic_configs["orders"].append(config("unclean.leader.election.enable", "true"))
    assert told(only(facts)) == (WARNING, "F7")


def test_settings_of_brokers() -> None:
    facts = healthy()
    for number in (1, 2, 3):
        facts.broker_configs[number] = {"auto.create.topics.enable": "true", "default.replication.factor": "4"}
    assert [told(finding) for finding in diagnose(facts)] == [(WARNING, "F16"), (NOTE, "F17")]
    facts = healthy()
    facts.broker_configs[2]["min.insync.replicas"] = "1"
    facts.broker_configs[3]["min.insync.replicas"] = "2"
    assert "1 on 2, 2 on 3" in only(facts).what


def test_disks() -> None:
    facts = healthy()
    facts.log_dirs = {1: [LogDir("/data", Error.NONE, [], 1000, 100)]}
    assert told(only(facts)) == (WARNING, "")
    facts.log_dirs = {1: [LogDir("/data", Error.NONE, [], 1000, 10)]}
    assert told(only(facts)) == (PROBLEM, "")
    facts.log_dirs = {1: [LogDir("/data", Error.KAFKA_STORAGE_ERROR, [], -1, -1)]}
    assert told(only(facts)) == (PROBLEM, "")


def group(state: str, *members: str) -> Group:
    return Group("readers", state, "range", 1, [Member(name, None, name, "host", []) for name in members])


def test_groups() -> None:
    facts = healthy()
    facts.groups = [GroupFacts(group("Empty"), 5)]
    assert told(only(facts)) == (NOTE, "F18")
    facts.groups = [GroupFacts(group("Stable", "a"), 50_000)]
    assert told(only(facts)) == (WARNING, "F18")
    facts.groups = [GroupFacts(group("PreparingRebalance", "a"), 0)]
    assert told(only(facts)) == (NOTE, "F19")
    facts.groups = [GroupFacts(group("Stable", "a"), 10), GroupFacts(group("Empty"), 0)]
    assert diagnose(facts) == []


def test_transactions_that_hang() -> None:
    facts = healthy()
    state = ProducerState(producer_id=1, producer_epoch=0, last_sequence=0, last_timestamp=0, coordinator_epoch=0)
    facts.hanging = [OpenTransaction(ORDERS, state)]
    assert told(only(facts)) == (PROBLEM, "")


def test_failed_reads_are_reported() -> None:
    facts = healthy()
    ask = FactReader(facts)

    def refuse(error: Error) -> Callable[[], int]:
        def question() -> int:
            raise error_from_code(error, "needs DESCRIBE permission")

        return question

    assert ask("folders of broker 1", refuse(Error.CLUSTER_AUTHORIZATION_FAILED), 7) == 7
    ask("topics", refuse(Error.REQUEST_TIMED_OUT), 7)
    ask("settings of topics", refuse(Error.TOPIC_AUTHORIZATION_FAILED), 7)
    late, forbidden = diagnose(facts)
    assert told(late) == (Severity.WARNING, "")
    assert "topics: needs DESCRIBE permission" in late.what
    assert told(forbidden) == (Severity.NOTE, "F11")
    assert forbidden.what == "this login may not describe folders of broker 1, settings of topics"


# ---- the store


def test_a_store_that_agrees() -> None:
    assert list(compare_with_brokers(healthy(), ZooKeeperState(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}))) == []


@pytest.mark.parametrize(
    "store",
    [
        ZooKeeperState(frozenset({1, 2}), 1, {ORDERS: (1, 4)}),
        ZooKeeperState(frozenset({1, 2, 3, 4}), 1, {ORDERS: (1, 4)}),
        ZooKeeperState(frozenset({1, 2, 3}), -1, {ORDERS: (1, 4)}),
        ZooKeeperState(frozenset({1, 2, 3}), 1, {ORDERS: (2, 5)}),
        ZooKeeperState(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4), TopicPartition("other", 0): (1, 0)}),
    ],
)
def test_a_store_that_disagrees(store: ZooKeeperState) -> None:
    (finding,) = compare_with_brokers(healthy(), store)
    assert told(finding) == (PROBLEM, "F14")


def test_what_healing_does_and_why_it_waits() -> None:
    def told_of(healing: HealJournal | str) -> list[tuple[Severity, str]]:
        store = ZooKeeperState(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}, healing)
        return [(finding.severity, finding.what) for finding in compare_with_brokers(healthy(), store)]

    move = ReplicaMove(ORDERS, (4,), (2,))
    assert told_of(HealJournal(moves=(move,), waits=("broker 5 is in maintenance",))) == [
        (Severity.WARNING, "healing waits: broker 5 is in maintenance"),
        (Severity.NOTE, "the controller copies 1 partition of broker 4 to other brokers (healing)"),
    ]
    damage = read_healing(Node(b"{}", 0, 1))
    assert isinstance(damage, str)
    assert told_of(damage) == [(Severity.WARNING, f"healing is off: {damage}")]
    assert told_of(read_healing(None)) == []


def test_a_topic_that_is_marked_for_deletion_and_kept() -> None:
    facts, store = healthy(), ZooKeeperState(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}, topics_to_delete=("orders",))
    assert list(compare_with_brokers(facts, store)) == [], "it is about to be deleted"
    facts.broker_configs[1]["delete.topic.enable"] = "false"
    (finding,) = compare_with_brokers(facts, store)
    assert finding.what == "topics that are marked for deletion, and still there: orders"


# ---- logs and words


def test_logs_are_searched_for_known_words() -> None:
    lines = [
        "INFO all is well",
        "WARN Found a corrupted index file due to requirement failed",
        "WARN Found a corrupted index file, again",
        "org.apache.kafka.common.protocol.types.SchemaException: Error reading field 'brokers'",
    ]
    assert [(sign.case, sign.times) for sign in recognize_cases(lines)] == [("F1", 2), ("F13", 1)]
    assert recognize_cases(lines)[0].last_line == lines[2]


def test_replicas_that_fall_out_are_counted_and_those_that_come_back_are_not() -> None:
    lines = [
        "INFO orders-0: in sync are [1, 2, 3, 4] now, before [1, 2, 4]",
        "INFO orders-0: in sync are [1, 2, 4] now, before [1, 2, 3, 4]",
        "INFO orders-1: in sync are [1] now, before [1, 12]",
        "INFO orders-1: in sync are [1, 12] now, before [1]",
        "INFO orders-2: in sync are [1, 2] now, before [2, 3]",
        "INFO orders-3: in sync are [2] now, before []",
        "INFO Shrinking ISR from 1,2 to 1",
        "INFO replicas that are in sync are never held up",
    ]
    (sign,) = recognize_cases(lines)
    assert (sign.case, sign.times, sign.last_line) == ("F3", 4, lines[6])
    assert recognize_cases(lines[:1]) == []


def test_the_command_reads_logs_and_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_text("TopicAuthorizationException: Not authorized to access topics: [orders]\n")
    assert doctor.run(["--log", str(log)]) == 0
    assert doctor.run(["--log", str(log), "--strict"]) == 1
    assert "WARNING F11: " in capsys.readouterr().out
    assert doctor.run(["--log", str(log), "--json"]) == 0
    assert '"case": "F11"' in capsys.readouterr().out
    assert doctor.run(["--explain", "f5"]) == 0
    assert "advertised.listeners" in capsys.readouterr().out
    assert doctor.run(["--explain"]) == 0
    assert len(re.findall(r"^F\d+ ", capsys.readouterr().out, re.MULTILINE)) == 20


def test_all_cases_of_the_list_are_known() -> None:
    assert list(CASES) == [f"F{number}" for number in range(1, 21)]


def test_long_lists_are_cut() -> None:
    assert shorten_list("abc") == "a, b, c"
    assert shorten_list("abcdefg") == "a, b, c, d, e and 2 more"


# ---- logins


@pytest.mark.parametrize(
    ("said", "word"),
    [
        # our broker
        ("failed login from 10.0.0.9 on listener S: authentication with GSSAPI: ... kvno 2 in keytab", "kvno"),
        ("failed login from 10.0.0.9 on listener S: wrong password, or unknown user 'a'", "password"),
        ("failed login from 10.0.0.9 on listener S: UNSUPPORTED_SASL_MECHANISM after a handshake", "mechanism"),
        # Java
        ("javax.security.auth.login.LoginException: Unable to obtain password from user", "keytab"),
        ("KrbException: Clock skew too great (37)", "clock"),
        ("GSSException: No valid (Server not found in Kerberos database (7) - LOOKING_UP_SERVER)", "service name"),
        ("LoginException: Pre-authentication information was invalid (24)", "password"),
        ("GSSException: Failure (Mechanism level: Specified version of key is not available (44))", "kvno"),
        ("Failed to find any Kerberos tgt", "ticket"),
        # librdkafka
        ("SASL authentication error: Authentication failed: Invalid username or password", "password"),
        ("Cannot contact any KDC for realm 'EXAMPLE.COM'", "kdc"),
    ],
)
def test_login_messages_identify_the_fault(said: str, word: str) -> None:
    fault = find_login_fault(said)
    assert fault is not None
    assert fault.name == word
    assert [sign.case for sign in recognize_cases([said])] == ["F10"]


def test_the_doctor_finds_the_cause_of_a_failed_login_in_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "failed login from 10.0.0.9 on listener S: the clocks of the two machines differ too much (Clock skew)\n"
    )
    assert doctor.run(["--log", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "F10: A client cannot log in" in shown
    assert "set both clocks by NTP" in shown


def held(client_id: str, key: str = "consumer_byte_rate", held_share: float = 0.5) -> QuotaUse:
    return QuotaUse("1", key, "alice", client_id, "user=alice", 1000.0, 1000.0, 1000.0, 0.0, 5, held_share)


def test_throttled_consumers_are_named_with_a_sufficient_quota() -> None:
    facts = healthy()
    member = Member("m", None, "app-1", "/10.0.0.9", [])
    facts.groups = [GroupFacts(Group("shop", "Stable", "range", 1, [member]), 70)]
    (finding,) = check_throttled_consumers(facts, [held("app-1"), held("app-2"), held("app-1", "producer_byte_rate")])
    assert finding.what == (
        "client app-1: consumer_byte_rate=1000 throttles it 50% of the time on broker 1, and these groups are behind: "
        "shop (70 records)"
    )
    assert "ottla quotas set --user alice --client app-1 consumer_byte_rate=2000" in finding.cure
    (of_user,) = check_throttled_consumers(facts, [held("")])
    assert of_user.what.startswith("clients of user alice: consumer_byte_rate=1000 throttles it")
    assert not list(check_throttled_consumers(facts, [held("app-1", held_share=0.01)]))


def links_page(rows: list[tuple[str, str, float, float]]) -> Reading:
    lines = ['ottla_info{node_id="2"} 1']
    for client_id, address, lost, waits in rows:
        labels = f'{{client_id="{client_id}",address="{address}",listener="PLAINTEXT"}}'
        figures = {"retransmitted_ratio": lost, "waits_seconds": waits, "round_trip_seconds": 0.02, "unsent_bytes": 0}
        lines += [f"ottla_tcp_worst_{name}{labels} {value}" for name, value in figures.items()]
    return parse_metrics("\n".join(lines), 0.0)


def test_clients_and_brokers_behind_a_bad_link_are_named_once() -> None:
    rows = [
        ("shop", "10.0.0.7:4000", 0.001, 0.0),
        ("shop", "10.0.0.7:4001", 0.0123, 0.0),
        ("broker-3-fetcher-0", "10.0.0.3:5", 0.01, 12.0),
        ("", "fe80::1:9", 0.5, 0.0),
        ("fine", "10.0.0.8:1", 0.0001, 0.5),
    ]
    nameless, broker, shop = check_packet_loss([links_page(rows), links_page([])])
    assert (shop.severity, shop.case, broker.severity) == (Severity.WARNING, "F15", Severity.PROBLEM)
    assert shop.what == (
        "client 'shop' at 10.0.0.7 gets no data for a while, then it goes on: 1.2% of the packets to it had to be sent "
        "again by broker 2 (round trip 20 ms)"
    )
    assert broker.what.startswith(
        "broker 3 at 10.0.0.3 gets no data for a while, then it goes on: nothing that was sent"
    )
    assert nameless.what.startswith("a client at fe80::1 gets no data")


def test_clients_whose_versions_are_not_spoken_are_named() -> None:
    page = (
        'ottla_unsupported_requests_total{client_id="shop",client_software_name="unknown",'
        'client_software_version="unknown",request="Produce",version="2"} 3\n'
        'ottla_unsupported_requests_total{client_id="a\\"b\u2028ottla_x 1",client_software_name="librdkafka",'
        'client_software_version="0.11.0",request="Fetch",version="3"} 7\n'
    )
    readings = [parse_metrics(page, 0.0), parse_metrics(page, 0.0)]
    odd, shop = check_unsupported(readings)
    assert (odd.severity, odd.case) == (Severity.WARNING, "F13")
    assert "(librdkafka 0.11.0) is disconnected, because it requests Fetch v3 (14 times)" in odd.what
    assert shop.what == ("client 'shop' (an unnamed library) is disconnected, because it requests Produce v2 (6 times)")
    assert not list(check_unsupported([parse_metrics("ottla_info 1\n", 0.0)]))


@pytest.mark.parametrize(
    "line",
    [
        "WARN closing the connection from ::1, client id 'a': it requests Fetch v2, and this broker supports v3",
        "WARN closing the connection from ::1, client id 'a': it requests API 76, and this broker does not know it",
        "InvalidRequestException: Received request for disabled api with key 22 (InitProducerId) and version 6",
    ],
)
def test_version_mismatches_are_found_in_logs_of_both_kinds_of_brokers(line: str) -> None:
    assert [sign.case for sign in recognize_cases([line])] == ["F13"]


def test_brokers_that_run_as_plain_python() -> None:
    plain = parse_metrics('ottla_info{node_id="2",compiled="false"} 1\n', 0.0)
    compiled = parse_metrics('ottla_info{node_id="1",compiled="true"} 1\n', 0.0)
    facts = healthy()
    (finding,) = check_uncompiled(facts, [compiled, plain], is_own_compiled=True)
    assert (finding.severity, finding.what) == (NOTE, "runs as plain Python, at several times the CPU: broker 2")
    assert not list(check_uncompiled(facts, [compiled], is_own_compiled=False)), "the broker reported it itself"
    assert not list(check_uncompiled(facts, [], is_own_compiled=False)), "remote brokers are not checked"
    facts.brokers = {1: broker(1, address=Address("localhost", 9092))}
    (own,) = check_uncompiled(facts, [], is_own_compiled=False)
    assert own.what.startswith("the ottla installed here is plain Python")
    assert not list(check_uncompiled(facts, [], is_own_compiled=True))


EVERYTHING = -(1 << 31)  # an old broker does not report them
READ, WRITE, DESCRIBE = (1 << operation for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE))


@pytest.mark.parametrize(
    ("error", "operations", "named", "unnamed"),
    [
        (Error.NONE, READ | WRITE | DESCRIBE, None, None),
        (Error.NONE, EVERYTHING, None, None),
        (Error.NONE, READ | DESCRIBE, (Severity.NOTE, "F11"), None),
        (Error.NONE, WRITE | DESCRIBE, (Severity.NOTE, "F11"), None),
        (Error.NONE, DESCRIBE, (Severity.PROBLEM, "F11"), (Severity.NOTE, "F11")),
        (Error.TOPIC_AUTHORIZATION_FAILED, EVERYTHING, (Severity.PROBLEM, "F12"), (Severity.PROBLEM, "F12")),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, EVERYTHING, (Severity.PROBLEM, ""), (Severity.PROBLEM, "")),
    ],
)
def test_what_a_login_may_do_with_a_topic(
    error: Error, operations: int, named: tuple[Severity, str] | None, unnamed: tuple[Severity, str] | None
) -> None:
    for are_named, expected in ((True, named), (False, unnamed)):
        found = list(
            topic_findings([TopicAuthorization("orders", error, operations)], "User:alice", are_named=are_named)
        )
        assert [told(each) for each in found] == ([expected] if expected is not None else [])
        if found and found[0].case:
            assert "User:alice" in found[0].what
            assert "ottla acls add --allow User:alice --producer --topic orders" in found[0].cure


def test_a_group_that_a_login_may_not_read_as() -> None:
    refused = [
        GroupAuthorization("g", None),
        GroupAuthorization("billing", error_from_code(Error.GROUP_AUTHORIZATION_FAILED)),
    ]
    (finding,) = group_findings(refused, None)
    assert told(finding) == (Severity.PROBLEM, "F11")
    assert finding.what == "this login may not read as group billing: its consumers get no partitions"
    assert finding.cure == "ottla acls add --allow User:NAME --operation read --group billing"


def test_names_that_no_broker_knows_are_listed() -> None:
    facts = healthy()
    facts.unknown_settings = {1: ["my.plugin.key", "log.retention.msec"], 2: ["log.retention.msec"], 3: []}
    finding = only(facts)
    assert finding.severity is Severity.NOTE
    assert "'log.retention.msec' brokers 1, 2, 'my.plugin.key' broker 1" in finding.what


def test_a_name_is_strange_if_neither_we_nor_its_broker_know_it() -> None:
    changed = Source.DYNAMIC_BROKER_CONFIG
    assert is_unknown_setting(Config("my.plugin.key", None, changed, True))
    assert is_unknown_setting(Config("my.plugin.key", None, Source.DYNAMIC_DEFAULT_BROKER_CONFIG, True))
    assert not is_unknown_setting(Config("my.plugin.key", None, Source.STATIC_BROKER_CONFIG, True))
    assert not is_unknown_setting(Config("a.newer.key.of.kafka", "1", changed, False))
    assert not is_unknown_setting(Config("listener.name.x.plain.sasl.jaas.config", None, changed, True))


def facts(living: list[int], **partitions: Partition) -> ClusterModel:
    """A cluster of topics with one partition each."""
    topics = [Topic(name, UUID(int=1), False, [found]) for name, found in partitions.items()]
    loads = [
        PartitionLoad(TopicPartition(name, 0), tuple(found.replicas), 100) for name, found in sorted(partitions.items())
    ]
    return ClusterModel("id", topics, loads, {broker: BrokerCapacity() for broker in living}, {}, [], [])


LED = Partition(0, 2, [1, 2], [2])
SOLO = Partition(0, -1, [1], [1])


def test_a_partition_without_a_leader_cannot_be_moved() -> None:
    found = facts([2, 3], led=LED, solo=SOLO)
    for gone in ([1], []):  # nothing to remove, so no command
        with pytest.raises(PlanError, match=r"^solo-0 has no leader, and its records are only on broker 1: ") as caught:
            check_all_brokers_live(found, gone)
        assert (
            "Start that broker again, or, if its records may be lost, delete the topic (ottla topics delete solo)"
            in str(caught.value)
        )
    check_all_brokers_live(facts([2, 3], led=LED), [1])


def test_all_partitions_without_a_leader_are_named() -> None:
    fallen_behind = Partition(0, -1, [2, 1], [1])  # it is up, but lacks records
    nobody_in_sync = Partition(0, -1, [1, 4], [], [], [4])
    found = facts([2, 3], led=LED, solo=SOLO, behind=fallen_behind, none=nobody_in_sync)
    with pytest.raises(PlanError) as caught:
        check_all_brokers_live(found, [1, 4])
    words = str(caught.value)
    assert words.startswith("solo-0, behind-0, none-0 have no leader, and their records are only on brokers 1, 4: ")
    assert "delete the topics (ottla topics delete solo behind none)" in words


def test_only_what_is_moved_needs_a_leader() -> None:
    found = facts([1, 2, 3], led=LED, solo=SOLO)  # the log directory of solo-0 has failed, the broker is up
    check_all_brokers_live(found)
    check_leaders(found, [TopicPartition("led", 0)])
    with pytest.raises(PlanError, match="solo-0 has no leader"):
        check_leaders(found, [TopicPartition("solo", 0)])


def test_deletion_is_not_suggested_for_a_topic_with_other_partitions() -> None:
    found = facts([1, 2, 3], led=LED, solo=SOLO)
    half = found.topics[1]._replace(partitions=[*found.topics[1].partitions, Partition(1, 2, [2], [2])])
    with pytest.raises(PlanError) as caught:
        check_leaders(found._replace(topics=[found.topics[0], half]), [TopicPartition("solo", 0)])
    assert "delete" not in str(caught.value)
    assert str(caught.value).endswith(
        "elect a replica that is not in sync (ottla elect --election-type unclean --topic solo --partition 0)"
    )
    dead = found._replace(topics=[found.topics[0], half], brokers={2: found.brokers[2]})
    with pytest.raises(PlanError, match=r"Start that broker again$"):
        check_leaders(dead, [TopicPartition("solo", 0)])


def test_all_brokers_that_are_away_are_named() -> None:
    with pytest.raises(PlanError, match=r"^broker 1 is down, but holds replicas: .*take it out \(.*remove 1\)"):
        check_all_brokers_live(facts([2], led=LED))
    wide = Partition(0, 2, [1, 2, 3, 5], [2])
    with pytest.raises(PlanError, match=r"^brokers 3, 5 are down, but hold .*take them out \(.*cluster remove 3 5\)"):
        check_all_brokers_live(facts([1, 2], wide=wide))
