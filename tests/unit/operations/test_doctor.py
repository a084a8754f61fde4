"""What the doctor makes of facts: each check finds what it is for, and a healthy cluster gives it nothing to say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import Operation
from ottla.cli.commands import doctor
from ottla.cli.doctor.store import StoreFacts, compare_store, read_healing
from ottla.client.addresses import Address
from ottla.client.admin import Partition, Topic
from ottla.client.configs import Config, Source
from ottla.client.errors import refusal
from ottla.client.groups import Group, Member
from ottla.client.log_dirs import Folder
from ottla.client.reassignments import Reassignment
from ottla.controller.decisions.healing.journal import Journal
from ottla.controller.decisions.journals import HealMove
from ottla.controller.stores.store import Node
from ottla.operations.doctor.cases import CASES
from ottla.operations.doctor.checks import diagnose
from ottla.operations.doctor.facts import Asking, BrokerFacts, Facts, GroupFacts
from ottla.operations.doctor.findings import Finding, Severity, some
from ottla.operations.doctor.held_up import check_held_up
from ottla.operations.doctor.links import check_links
from ottla.operations.doctor.logins import login_fault
from ottla.operations.doctor.logs import signs_in
from ottla.operations.doctor.plain_python import check_plain_python
from ottla.operations.doctor.rights import GroupRights, TopicRights, group_findings, topic_findings
from ottla.operations.doctor.unsupported import check_unsupported
from ottla.operations.hanging_transactions import OpenTransaction
from ottla.operations.metric_readings import Reading, parse_metrics
from ottla.operations.quota_shares import Share
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


def healthy(partition: Partition | None = None) -> Facts:
    """Three brokers and a topic with three replicas, of which two must be in sync."""
    found = partition or Partition(0, 1, [1, 2, 3], [1, 2, 3])
    facts = Facts(NOW_MS, "cluster")
    facts.brokers = {number: broker(number) for number in (1, 2, 3)}
    facts.topics = [topic(found)]
    facts.later = {ORDERS: found}
    facts.topic_configs = {"orders": [config("min.insync.replicas", "2")]}
    facts.broker_configs = {number: {"auto.create.topics.enable": "false"} for number in (1, 2, 3)}
    facts.folders = {1: [Folder("/data", Error.NONE, [], 1000, 900)]}
    return facts


def only(facts: Facts) -> Finding:
    findings = diagnose(facts)
    assert len(findings) == 1, findings
    return findings[0]


def told(finding: Finding) -> tuple[Severity, str]:
    assert finding.what
    assert finding.cause
    assert finding.cure
    return finding.severity, finding.case


PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE


def test_a_healthy_cluster_gives_nothing_to_say() -> None:
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
    facts.moves = {ORDERS: Reassignment([1, 2, 3], [3], [])}
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


def test_brokers_that_tell_another_leader() -> None:
    facts = healthy()
    facts.brokers[3] = broker(3, leaders={ORDERS: (2, 3)})
    finding = only(facts)
    assert told(finding) == (PROBLEM, "F14")
    assert finding.what.startswith("broker 3 ")
    facts.later = {ORDERS: Partition(0, 2, [1, 2, 3], [1, 2, 3])}
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
    facts.later = {ORDERS: Partition(0, 1, [1, 2, 3], [1, 2])}
    assert told(only(facts)) == (WARNING, "F20")


def test_leaders_that_have_strayed() -> None:
    facts = healthy(Partition(0, 2, [1, 2, 3], [1, 2, 3]))
    facts.brokers = {number: broker(number, leaders={ORDERS: (2, 4)}) for number in (1, 2, 3)}
    assert told(only(facts)) == (NOTE, "")


def test_moves_and_throttles() -> None:
    facts = healthy()
    facts.moves = {TopicPartition("x", number): Reassignment([1, 2], [2], [1]) for number in range(100)}
    assert told(only(facts)) == (WARNING, "F4")
    facts.broker_configs[1] = {"leader.replication.throttled.rate": "1000"}
    assert told(only(facts)) == (NOTE, "F4")
    facts.moves = {}
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
    facts.folders = {1: [Folder("/data", Error.NONE, [], 1000, 100)]}
    assert told(only(facts)) == (WARNING, "")
    facts.folders = {1: [Folder("/data", Error.NONE, [], 1000, 10)]}
    assert told(only(facts)) == (PROBLEM, "")
    facts.folders = {1: [Folder("/data", Error.KAFKA_STORAGE_ERROR, [], -1, -1)]}
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


def test_what_could_not_be_asked_is_told() -> None:
    facts = healthy()
    ask = Asking(facts)

    def refuse(error: Error) -> Callable[[], int]:
        def question() -> int:
            raise refusal(error, "needs DESCRIBE permission")

        return question

    assert ask("folders of broker 1", refuse(Error.CLUSTER_AUTHORIZATION_FAILED), 7) == 7
    ask("topics", refuse(Error.REQUEST_TIMED_OUT), 7)
    ask("settings of topics", refuse(Error.TOPIC_AUTHORIZATION_FAILED), 7)
    late, forbidden = diagnose(facts)
    assert told(late) == (Severity.WARNING, "")
    assert "topics: needs DESCRIBE permission" in late.what
    assert told(forbidden) == (Severity.NOTE, "F11")
    assert forbidden.what == "this login may not look at folders of broker 1, settings of topics"


# ---- the store


def test_a_store_that_tells_the_same() -> None:
    assert list(compare_store(healthy(), StoreFacts(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}))) == []


@pytest.mark.parametrize(
    "store",
    [
        StoreFacts(frozenset({1, 2}), 1, {ORDERS: (1, 4)}),
        StoreFacts(frozenset({1, 2, 3, 4}), 1, {ORDERS: (1, 4)}),
        StoreFacts(frozenset({1, 2, 3}), -1, {ORDERS: (1, 4)}),
        StoreFacts(frozenset({1, 2, 3}), 1, {ORDERS: (2, 5)}),
        StoreFacts(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4), TopicPartition("other", 0): (1, 0)}),
    ],
)
def test_a_store_that_tells_another_story(store: StoreFacts) -> None:
    (finding,) = compare_store(healthy(), store)
    assert told(finding) == (PROBLEM, "F14")


def test_what_healing_does_and_why_it_waits() -> None:
    def told_of(healing: Journal | str) -> list[tuple[Severity, str]]:
        store = StoreFacts(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}, healing)
        return [(finding.severity, finding.what) for finding in compare_store(healthy(), store)]

    move = HealMove(ORDERS, (4,), (2,))
    assert told_of(Journal(moves=(move,), waits=("broker 5 is in maintenance",))) == [
        (Severity.WARNING, "healing waits: broker 5 is in maintenance"),
        (Severity.NOTE, "the controller has 1 partition of broker 4 copied anew (healing)"),
    ]
    damage = read_healing(Node(b"{}", 0, 1))
    assert isinstance(damage, str)
    assert told_of(damage) == [(Severity.WARNING, f"healing is off: {damage}")]
    assert told_of(read_healing(None)) == []


def test_a_topic_that_is_marked_for_deletion_and_kept() -> None:
    facts, store = healthy(), StoreFacts(frozenset({1, 2, 3}), 1, {ORDERS: (1, 4)}, marked=("orders",))
    assert list(compare_store(facts, store)) == [], "it is about to be deleted"
    facts.broker_configs[1]["delete.topic.enable"] = "false"
    (finding,) = compare_store(facts, store)
    assert finding.what == "topics that are marked for deletion, and still there: orders"


# ---- logs and words


def test_logs_are_searched_for_known_words() -> None:
    lines = [
        "INFO all is well",
        "WARN Found a corrupted index file due to requirement failed",
        "WARN Found a corrupted index file, again",
        "org.apache.kafka.common.protocol.types.SchemaException: Error reading field 'brokers'",
    ]
    assert [(sign.case, sign.times) for sign in signs_in(lines)] == [("F1", 2), ("F13", 1)]
    assert signs_in(lines)[0].last_line == lines[2]


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
    (sign,) = signs_in(lines)
    assert (sign.case, sign.times, sign.last_line) == ("F3", 4, lines[6])
    assert signs_in(lines[:1]) == []


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
    assert some("abc") == "a, b, c"
    assert some("abcdefg") == "a, b, c, d, e and 2 more"


# ---- logins


@pytest.mark.parametrize(
    ("said", "word"),
    [
        # our broker
        ("failed login from 10.0.0.9 on listener S: authentication with GSSAPI: ... kvno 2 in keytab", "kvno"),
        ("failed login from 10.0.0.9 on listener S: wrong password, or nobody is called 'a'", "password"),
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
def test_what_is_said_about_a_login_names_its_fault(said: str, word: str) -> None:
    fault = login_fault(said)
    assert fault is not None
    assert fault.word == word
    assert [sign.case for sign in signs_in([said])] == ["F10"]


def test_the_doctor_tells_the_cause_of_a_failed_login_in_a_log(
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


def held(client_id: str, key: str = "consumer_byte_rate", held_share: float = 0.5) -> Share:
    return Share("1", key, "alice", client_id, "user=alice", 1000.0, 1000.0, 1000.0, 0.0, 5, held_share)


def test_consumers_that_a_quota_holds_up_are_named_with_a_rule_that_would_do() -> None:
    facts = healthy()
    member = Member("m", None, "app-1", "/10.0.0.9", [])
    facts.groups = [GroupFacts(Group("shop", "Stable", "range", 1, [member]), 70)]
    (finding,) = check_held_up(facts, [held("app-1"), held("app-2"), held("app-1", "producer_byte_rate")])
    assert finding.what == (
        "client app-1: consumer_byte_rate=1000 holds it up 50% of the time on broker 1, and these groups are behind: "
        "shop (70 records)"
    )
    assert "ottla quotas set --user alice --client app-1 consumer_byte_rate=2000" in finding.cure
    (of_user,) = check_held_up(facts, [held("")])
    assert of_user.what.startswith("clients of user alice: consumer_byte_rate=1000 holds it up")
    assert not list(check_held_up(facts, [held("app-1", held_share=0.01)]))


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
    nameless, broker, shop = check_links([links_page(rows), links_page([])])
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
    assert "(librdkafka 0.11.0) is cut off, because it asks for Fetch v3 (14 times)" in odd.what
    assert shop.what == (
        "client 'shop' (a library that does not tell its name) is cut off, because it asks for Produce v2 (6 times)"
    )
    assert not list(check_unsupported([parse_metrics("ottla_info 1\n", 0.0)]))


@pytest.mark.parametrize(
    "line",
    [
        "WARN closing the connection from ::1, client id 'a': it asks for Fetch v2, and this broker speaks v3",
        "WARN closing the connection from ::1, client id 'a': it asks for API 76, and this broker does not know it",
        "InvalidRequestException: Received request for disabled api with key 22 (InitProducerId) and version 6",
    ],
)
def test_logs_of_both_kinds_of_brokers_tell_of_versions_that_do_not_fit(line: str) -> None:
    assert [sign.case for sign in signs_in([line])] == ["F13"]


def test_brokers_that_run_as_plain_python() -> None:
    plain = parse_metrics('ottla_info{node_id="2",compiled="false"} 1\n', 0.0)
    compiled = parse_metrics('ottla_info{node_id="1",compiled="true"} 1\n', 0.0)
    facts = healthy()
    (finding,) = check_plain_python(facts, [compiled, plain], is_own_compiled=True)
    assert (finding.severity, finding.what) == (NOTE, "runs as plain Python, at several times the CPU: broker 2")
    assert not list(check_plain_python(facts, [compiled], is_own_compiled=False)), "the broker itself has told"
    assert not list(check_plain_python(facts, [], is_own_compiled=False)), "brokers elsewhere are none of ours"
    facts.brokers = {1: broker(1, address=Address("localhost", 9092))}
    (own,) = check_plain_python(facts, [], is_own_compiled=False)
    assert own.what.startswith("the ottla that is installed here is plain Python")
    assert not list(check_plain_python(facts, [], is_own_compiled=True))


EVERYTHING = -(1 << 31)  # an old broker does not tell
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
        found = list(topic_findings([TopicRights("orders", error, operations)], "User:alice", are_named=are_named))
        assert [told(each) for each in found] == ([expected] if expected is not None else [])
        if found and found[0].case:
            assert "User:alice" in found[0].what
            assert "ottla acls add --allow User:alice --producer --topic orders" in found[0].cure


def test_a_group_that_a_login_may_not_read_as() -> None:
    refused = [GroupRights("g", None), GroupRights("billing", refusal(Error.GROUP_AUTHORIZATION_FAILED))]
    (finding,) = group_findings(refused, None)
    assert told(finding) == (Severity.PROBLEM, "F11")
    assert finding.what == "this login may not read as group billing: its consumers get no partitions"
    assert finding.cure == "ottla acls add --allow User:NAME --operation read --group billing"
