"""`ottla doctor`: look at a cluster from outside and tell what is wrong with it, why, and what helps.

Works with any Kafka. Nothing is changed, and nothing is written but questions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from ottla.base.compiled import is_compiled
from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.terminal import EXIT_FAILED, UsageError, is_terminal, say, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.doctor.cases import CASES
from ottla.operations.doctor.checks import diagnose, in_order
from ottla.operations.doctor.facts import Facts, gather
from ottla.operations.doctor.findings import Finding, Severity, known, login_failure
from ottla.operations.doctor.held_up import check_held_up
from ottla.operations.doctor.links import check_links
from ottla.operations.doctor.logins import LOGIN_CASE
from ottla.operations.doctor.logs import signs_in
from ottla.operations.doctor.plain_python import check_plain_python
from ottla.operations.doctor.probing import login_findings
from ottla.operations.doctor.rights import ask_group_rights, ask_topic_rights, group_findings, topic_findings
from ottla.operations.doctor.unsupported import check_unsupported
from ottla.operations.metric_readings import VARIABLE, Reading, read_metrics
from ottla.operations.quota_shares import shares_of
from ottla.security.client_principal import client_principal

EXAMPLES = """
ottla doctor
ottla doctor --bootstrap-server old-kafka:9092 --json
ottla doctor --command-config alice.properties --topic orders --group billing       may alice do that?
ottla doctor --zookeeper 127.0.0.1:2181         compare with what ZooKeeper holds
ottla doctor --url http://127.0.0.1:9404        also quotas, versions that do not fit, lost packets
ottla doctor --log server.log                   what a log tells of
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
        return _tell(_of_logs(options.log), options, None)
    properties = command_properties(getattr(options, "command_config", None))
    try:
        with make_client(bootstrap_of(options), properties) as client:
            client.timeout_ms = min(client.timeout_ms, TIMEOUT_MS)
            before = _metrics(options)
            facts = gather(client, PAUSE_SECONDS)
            rights = _rights(client, options, properties)
    except ClientError as problem:
        findings = login_findings(problem, bootstrap_of(options), properties)
        if not findings:
            raise
        return _tell(findings, options, None)
    after = _metrics(options)
    shares = [share for pair in zip(before, after, strict=True) for share in shares_of(*pair)]
    told = [*check_held_up(facts, shares), *check_unsupported(after), *check_links(after)]
    told += check_plain_python(facts, after, is_own_compiled=is_compiled())
    findings = in_order([*rights, *diagnose(facts), *told])
    if options.zookeeper is not None:
        from ottla.cli.doctor.store import compare_store, read_store  # noqa: PLC0415 (needs kazoo)

        findings = in_order([*compare_store(facts, read_store(options.zookeeper)), *findings])
    return _tell(findings, options, facts)


def _parser() -> Parser:
    parser = Parser(
        prog="ottla doctor", description="Tell what is wrong with a cluster, why, and what helps.", examples=EXAMPLES
    )
    add_connection(parser)
    parser.add_argument("--topic", action="append", default=[], help="may this login use it? Can be repeated")
    parser.add_argument("--group", action="append", default=[], help="may this login read as this group?")
    parser.add_argument("--json", action="store_true", help="findings as one JSON document")
    parser.add_argument("--strict", action="store_true", help="warnings count as problems for the exit code")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="compare with what ZooKeeper holds")
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help=f"a broker's metrics endpoint (default: ${VARIABLE}): whom a quota holds up, whose versions do not fit, "
        "whose packets are lost",
    )
    parser.add_argument("--log", action="append", default=[], metavar="FILE", help="read a log instead of a cluster")
    parser.add_argument("--explain", nargs="?", const="all", metavar="F1", help="a failure case, or all of them")
    return parser


def _metrics(options: argparse.Namespace) -> list[Reading]:
    named = os.environ.get(VARIABLE)
    return [read_metrics(url) for url in options.url or ([named] if named else [])]


def _rights(client: Client, options: argparse.Namespace, properties: dict[str, str]) -> list[Finding]:
    """What this login may do; a broker that cannot be asked has been told of by then."""
    principal = client_principal(properties)
    try:
        topics = ask_topic_rights(client, options.topic or None)
    except ClientError:
        topics = []
    groups = ask_group_rights(client, options.group)
    return [
        *topic_findings(topics, principal, are_named=bool(options.topic)),
        *group_findings(groups, principal),
    ]


def _of_logs(paths: Sequence[str]) -> list[Finding]:
    findings = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for sign in signs_in(file):
                times = "once" if sign.times == 1 else f"{sign.times} times"
                what = f"{CASES[sign.case].title} ({path}, {times}): {sign.last_line}"
                if sign.case == LOGIN_CASE:
                    findings.append(login_failure(Severity.WARNING, what, sign.last_line))
                else:
                    findings.append(known(Severity.WARNING, sign.case, what))
    return findings


def _explain(name: str) -> int:
    wanted = list(CASES) if name == "all" else [name.upper()]
    if wanted[0] not in CASES:
        raise UsageError(f"there is no case {name}: they are F1 to F{len(CASES)}")
    for number in wanted:
        case = CASES[number]
        print(f"{number}  {case.title}\n    cause: {case.cause}\n    cure:  {case.cure}")
    return 0


def _tell(findings: Sequence[Finding], options: argparse.Namespace, facts: Facts | None) -> int:
    if options.json:
        rows = [{**finding._asdict(), "severity": finding.severity.value} for finding in findings]
        document = {"cluster": facts.cluster_id if facts is not None else None, "findings": rows}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            _print(finding)
        if facts is not None:
            warn(_summary(findings, facts))
        elif not findings:
            warn("The log tells of none of the known cases.")
    severities = {finding.severity for finding in findings}
    is_bad = Severity.PROBLEM in severities or (options.strict and Severity.WARNING in severities)
    return EXIT_FAILED if is_bad else 0


def _print(finding: Finding) -> None:
    word = finding.severity.value.upper()
    if is_terminal(sys.stdout):
        word = f"{COLOURS[finding.severity]}{word}{PLAIN}"
    print(word, end=" ")
    say(f"{finding.case + ': ' if finding.case else ''}{finding.what}")
    say(f"    cause: {finding.cause}")
    say(f"    cure:  {finding.cure}")


def _summary(findings: Sequence[Finding], facts: Facts) -> str:
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    partitions = len(facts.partitions())
    seen = ", ".join(
        counted(number, noun)
        for number, noun in (
            (len(facts.brokers), "broker"),
            (len(facts.topics), "topic"),
            (partitions, "partition"),
            (len(facts.groups), "group"),
        )
    )
    if not findings:
        return f"Nothing is wrong as far as can be seen from outside ({seen})."
    words = ", ".join(counted(count, severity.value) for severity, count in counts.items() if count)
    return f"{words} ({seen})."


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
