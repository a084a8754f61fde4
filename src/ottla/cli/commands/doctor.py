"""`ottla doctor`: examines a cluster from outside and reports problems with their cause and remedy.

It works with any Kafka cluster and only reads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from ottla.base.compiled import is_compiled
from ottla.base.text import escape_json, format_count
from ottla.cli.arguments import CONNECTION, Argument, Parser, bootstrap_of, flag
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.terminal import EXIT_FAILED, UsageError, is_terminal, print_line, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.doctor.authorized_operations import (
    check_group_rights,
    describe_topic_rights,
    group_findings,
    topic_findings,
)
from ottla.operations.doctor.checks import diagnose, sort_by_severity
from ottla.operations.doctor.cluster_facts import ClusterFacts, collect_facts
from ottla.operations.doctor.connection_checks import login_findings
from ottla.operations.doctor.failure_cases import CASES, recognize_cases
from ottla.operations.doctor.findings import Finding, Severity, case_finding, login_failure
from ottla.operations.doctor.login_failures import LOGIN_CASE
from ottla.operations.doctor.metric_checks import (
    check_packet_loss,
    check_throttled_consumers,
    check_uncompiled,
    check_unsupported,
)
from ottla.operations.metric_readings import URL_VARIABLE, Reading, read_metrics
from ottla.operations.quotas import quota_uses
from ottla.security.client_protocol import client_principal

EXAMPLES = """
ottla doctor
ottla doctor --bootstrap-server old-kafka:9092 --json
ottla doctor --command-config alice.properties --topic orders --group billing       check the rights of alice
ottla doctor --zookeeper 127.0.0.1:2181         compare with the state in ZooKeeper
ottla doctor --url http://127.0.0.1:9404        include quotas, unsupported versions, lost packets
ottla doctor --log server.log                   search a log for known problems
ottla doctor --explain F5
"""
TIMEOUT_MS = 8_000
PAUSE_SECONDS = 1.0
COLOURS = {Severity.PROBLEM: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.NOTE: "\x1b[1;36m"}
PLAIN = "\x1b[0m"


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.explain is not None:
        return _explain(options.explain)
    if options.log:
        return _print_findings(_log_findings(options.log), options, None)
    properties = command_properties(getattr(options, "command_config", None))
    try:
        with make_client(bootstrap_of(options), properties) as client:
            client.timeout_ms = min(client.timeout_ms, TIMEOUT_MS)
            before = _metrics(options)
            facts = collect_facts(client, PAUSE_SECONDS)
            rights = _rights(client, options, properties)
    except ClientError as problem:
        findings = login_findings(problem, bootstrap_of(options), properties)
        if not findings:
            raise
        return _print_findings(findings, options, None)
    after = _metrics(options)
    shares = [share for pair in zip(before, after, strict=True) for share in quota_uses(*pair)]
    local_findings = [*check_throttled_consumers(facts, shares), *check_unsupported(after), *check_packet_loss(after)]
    local_findings += check_uncompiled(facts, after, is_own_compiled=is_compiled())
    findings = sort_by_severity([*rights, *diagnose(facts), *local_findings])
    if options.zookeeper is not None:
        from ottla.cli.metadata.zookeeper_checks import compare_with_brokers, read_zookeeper_state  # noqa: PLC0415 (needs kazoo)

        findings = sort_by_severity([*compare_with_brokers(facts, read_zookeeper_state(options.zookeeper)), *findings])
    return _print_findings(findings, options, facts)


def _parser() -> Parser:
    return Parser(
        prog="ottla doctor",
        description="Report the problems of a cluster, with cause and remedy.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument("--topic", action="append", default=[], help="may this login use it? Can be repeated"),
            Argument("--group", action="append", default=[], help="may this login read as this group?"),
            flag("--json", help="findings as one JSON document"),
            flag("--strict", help="warnings count as problems for the exit code"),
            Argument("--zookeeper", metavar="HOST:PORT", help="compare with the state in ZooKeeper"),
            Argument(
                "--url",
                action="append",
                metavar="URL",
                help=f"a broker's metrics endpoint (default: ${URL_VARIABLE}): throttled clients, unsupported "
                "versions, lost packets",
            ),
            Argument("--log", action="append", default=[], metavar="FILE", help="read a log instead of a cluster"),
            Argument("--explain", nargs="?", const="all", metavar="F1", help="describe a failure case, or all of them"),
        ),
    )


def _metrics(options: argparse.Namespace) -> list[Reading]:
    named = os.environ.get(URL_VARIABLE)
    return [read_metrics(url) for url in options.url or ([named] if named else [])]


def _rights(client: Client, options: argparse.Namespace, properties: dict[str, str]) -> list[Finding]:
    """Findings about the rights of this login; unreachable brokers are already reported."""
    principal = client_principal(properties)
    try:
        topics = describe_topic_rights(client, options.topic or None)
    except ClientError:
        topics = []
    groups = check_group_rights(client, options.group)
    return [
        *topic_findings(topics, principal, are_named=bool(options.topic)),
        *group_findings(groups, principal),
    ]


def _log_findings(paths: Sequence[str]) -> list[Finding]:
    findings = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for sign in recognize_cases(file):
                times = "once" if sign.times == 1 else f"{sign.times} times"
                what = f"{CASES[sign.case].title} ({path}, {times}): {sign.last_line}"
                if sign.case == LOGIN_CASE:
                    findings.append(login_failure(Severity.WARNING, what, sign.last_line))
                else:
                    findings.append(case_finding(Severity.WARNING, sign.case, what))
    return findings


def _explain(name: str) -> int:
    wanted = list(CASES) if name == "all" else [name.upper()]
    if wanted[0] not in CASES:
        raise UsageError(f"unknown case {name}: known are F1 to F{len(CASES)}")
    for number in wanted:
        case = CASES[number]
        print(f"{number}  {case.title}\n    cause: {case.cause}\n    cure:  {case.remedy}")
    return 0


def _print_findings(findings: Sequence[Finding], options: argparse.Namespace, facts: ClusterFacts | None) -> int:
    if options.json:
        rows = [{**finding._asdict(), "severity": finding.severity.value} for finding in findings]
        document = {"cluster": facts.cluster_id if facts is not None else None, "findings": rows}
        print(escape_json(json.dumps(document, indent=2, ensure_ascii=False)))
    else:
        for finding in findings:
            _print(finding)
        if facts is not None:
            warn(_summary(findings, facts))
        elif not findings:
            warn("The log contains none of the known cases.")
    severities = {finding.severity for finding in findings}
    is_bad = Severity.PROBLEM in severities or (options.strict and Severity.WARNING in severities)
    return EXIT_FAILED if is_bad else 0


def _print(finding: Finding) -> None:
    word = finding.severity.value.upper()
    if is_terminal(sys.stdout):
        word = f"{COLOURS[finding.severity]}{word}{PLAIN}"
    print(word, end=" ")
    print_line(f"{finding.case + ': ' if finding.case else ''}{finding.what}")
    print_line(f"    cause: {finding.cause}")
    print_line(f"    cure:  {finding.cure}")


def _summary(findings: Sequence[Finding], facts: ClusterFacts) -> str:
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    partitions = len(facts.partitions())
    seen = ", ".join(
        format_count(number, noun)
        for number, noun in (
            (len(facts.brokers), "broker"),
            (len(facts.topics), "topic"),
            (partitions, "partition"),
            (len(facts.groups), "group"),
        )
    )
    if not findings:
        return f"No problems found ({seen})."
    words = ", ".join(format_count(count, severity.value) for severity, count in counts.items() if count)
    return f"{words} ({seen})."
