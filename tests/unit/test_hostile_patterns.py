"""Every place that takes a regular expression from outside, with patterns that are small and cost much.

Each refuses a pattern, or compiles and matches it, in a fraction of a second of processor time; RE2 and Python's engine
alone take from seconds to for ever. `make check` sees to it that there is no other place (tools/check_rules.py).
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bench.hostile_patterns import ACCEPTED, HOSTILE
from tests import virtual_time

from ottla.base.names import TopicPartition
from ottla.base.regular_expressions import AsciiPattern, PatternError, compile_java_pattern, compile_pattern
from ottla.base.resource_keys import matches, parse_matcher
from ottla.broker.coordinator_service.group_topics import TopicPatterns
from ottla.cli.commands.subscriptions import _pattern as client_option
from ottla.cli.java.options import OptionError, topic_pattern
from ottla.monitor.alerts.rule_entries import ConfigError
from ottla.monitor.config import FileEntry, _expression
from ottla.operations.messages.expressions.parser import parse
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.formats.json_schema import json_encoder
from ottla.operations.schema_registry.schemas import Schema
from ottla.pipelines.model.pipeline import _matches as reads_itself
from ottla.pipelines.running.source_options import _compiled as source_pattern
from ottla.pipelines.source.cluster import filter_subscribed
from ottla.pipelines.source.options import Subscription
from ottla.pipelines.source.options import _pattern as subscribe_pattern
from ottla.pipelines.steps.parsing.patterns import check_pattern, group_names, read_grok
from ottla.registry.formats.json_schema.model import check_pattern as check_schema_pattern
from ottla.registry.formats.json_schema.model import compiled_pattern
from ottla.registry.formats.schema_format import InvalidSchemaError
from ottla.security.kerberos_names import KerberosShortNamer
from ottla.security.ssl_principal_mapper import SslPrincipalMapper

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from check_rules import patterns_from_outside

SECONDS_MAX = 0.5  # of processor time: for what an operator writes; clients get less (CLIENT_SECONDS_MAX)
CLIENT_SECONDS_MAX = 0.1
TEXT = "a" * 240 + "!"


def heartbeat(pattern: str) -> None:
    virtual_time.run(_matched(pattern, lambda patterns: patterns.match_topics(pattern, {TEXT: None})))


def list_transactions(pattern: str) -> None:
    virtual_time.run(_matched(pattern, lambda patterns: patterns.match_texts(pattern, [TEXT])))


async def _matched(pattern: str, work: Callable[[TopicPatterns], Any]) -> None:
    with ThreadPoolExecutor(1) as workers:
        patterns = TopicPatterns(workers)
        await patterns.check(pattern)
        if patterns.problem_of(pattern) is not None:
            raise ValueError(patterns.problem_of(pattern))
        await work(patterns)


def schema_of_producer(pattern: str) -> None:
    json_encoder(Schema("JSON", f'{{"pattern": {_quoted(pattern)}}}'))(TEXT)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


def schema_of_registry(pattern: str) -> None:
    check_schema_pattern(pattern)
    compiled = compiled_pattern(pattern)
    if compiled is not None:
        compiled.search(TEXT)


def search(pattern: str) -> None:
    parse(f"/{pattern}/")
    compile_pattern(pattern, is_case_blind=True).search(TEXT)


def local_name(pattern: str) -> str:
    return KerberosShortNamer([f"RULE:[1:$1]({pattern})s/{pattern}/b/"], "R").short_name(f"{TEXT}@R")


def allowlist(pattern: str) -> Any:
    return _expression("group-allowlist", FileEntry(group_allowlist=pattern))


BY_CLIENTS: dict[str, Callable[[str], Any]] = {
    "SubscribedTopicRegex": heartbeat,
    "TransactionalIdPattern": list_transactions,
    "match of client metrics": lambda pattern: matches(parse_matcher([f"client_id={pattern}"]), {"client_id": TEXT}),
    "search": search,
    "JSON schema in the registry": schema_of_registry,
}
BY_OPERATORS: dict[str, Callable[[str], Any]] = {
    "ssl.principal.mapping.rules": lambda pattern: SslPrincipalMapper(f"RULE:{pattern}/$0/, DEFAULT").name(TEXT),
    "sasl.kerberos.principal.to.local.rules": lambda pattern: KerberosShortNamer(
        [f"RULE:[1:$1]({pattern})s/a/b/"], "R"
    ).short_name(f"{TEXT}@R"),
    "--topic, --include": lambda pattern: topic_pattern(pattern).fullmatch(TEXT),
    "--client": lambda pattern: client_option(pattern).fullmatch(TEXT),
    "--pattern": lambda pattern: compile_java_pattern(pattern).fullmatch(TEXT),
    "allowlist of the monitor": lambda pattern: _expression(
        "group-allowlist", FileEntry(group_allowlist=pattern)
    ).match(TEXT),
    "JSON schema of a producer": schema_of_producer,
    "pipeline: from": lambda pattern: source_pattern(pattern).fullmatch(TEXT),
    "pipeline: circles": lambda pattern: reads_itself(pattern, TEXT),
    "pipeline: subscribePattern": subscribe_pattern,
    "pipeline: topics": lambda pattern: filter_subscribed(Subscription(pattern=pattern), [TopicPartition(TEXT, 0)]),
    "pipeline: matches": check_pattern,
    "pipeline: regex": group_names,
    "pipeline: grok": lambda pattern: read_grok(pattern, {}),
}
PLACES = {**BY_CLIENTS, **BY_OPERATORS}


REFUSALS = (ValueError, ArgumentTypeError, OptionError, SchemaError, InvalidSchemaError, ConfigError)


def seconds_for(place: str, patterns: Iterable[str]) -> float:
    """Processor time for the pattern that takes longest; each is refused, or matched with a text."""
    longest = 0.0
    gc.disable()  # one collection over all objects of a long test run takes half a second
    try:
        for pattern in ("warm|up", *patterns):
            start = time.process_time()
            with contextlib.suppress(*REFUSALS):
                PLACES[place](pattern)
            longest = max(longest, time.process_time() - start) if pattern != "warm|up" else 0.0
    finally:
        gc.enable()
    return longest


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_pattern_costs_little(place: str) -> None:
    seconds_max = CLIENT_SECONDS_MAX if place in BY_CLIENTS else SECONDS_MAX
    assert seconds_for(place, [*HOSTILE.values(), *ACCEPTED.values()]) < seconds_max


@pytest.mark.parametrize("place", PLACES)
def test_a_pattern_that_makes_others_track_back_for_ever(place: str) -> None:
    assert seconds_for(place, ["(?:a+)+$", "(?:a|a)*$", "(?:a*)*b", "(?:.*)*(?:.*)*x"]) < CLIENT_SECONDS_MAX


def joined(names: Iterable[str]) -> str:
    """As many names as fit into 16 KiB."""
    return "|".join(names)[: 16 << 10].rpartition("|")[0]


LEGAL = {
    "16 KiB of names": "|".join(f"team-{number % 37}.orders-{number}" for number in range(2_000))[
        : 16 << 10
    ].rpartition("|")[0],
    "16 KiB of escaped names": "|".join(rf"eu\.orders\-{number}" for number in range(2_000))[: 16 << 10].rpartition(
        "|"
    )[0],
    "16 KiB of short names": joined(f"t{number}" for number in range(4_000)),
    "one long name": "a" * (16 << 10),
    "in brackets": "^(?:" + "|".join(f"orders-{number}" for number in range(1_300)) + ")(?:-dlq)?$",
    "prefixes": "|".join(f"team-{number}[.].*" for number in range(500)),
    "every legal name": "[a-zA-Z0-9._-]{1,249}",
    "letters": r"\p{L}+-\p{N}*",
    "copies": "(?:[a-z]{1,20}-){1,5}[0-9]{1,9}",
    "in either case": "(?i)" + "|".join(f"Orders-{number}" for number in range(1_200)),
}


@pytest.mark.parametrize("what", LEGAL)
def test_legal_patterns_stay_legal(what: str) -> None:
    assert isinstance(AsciiPattern(LEGAL[what]).matches("orders-7"), bool)


def test_a_pattern_of_names_matches_those_names() -> None:
    names = [f"team-{number % 37}.orders-{number}" for number in range(700)]
    pattern = AsciiPattern("|".join(names))
    assert all(map(pattern.matches, names))
    assert not any(pattern.matches(f"{name}x") for name in names)


@pytest.mark.parametrize("pattern", ["a.c", "é+", r"\x{e9}", "[^a]", "é|ü", r"\pL", "(?i)É", "a b", r"[[:alpha:]]-"])
def test_the_narrow_form_of_a_pattern_means_the_same(pattern: str) -> None:
    wide = compile_pattern(pattern)
    for text in ("abc", "a-c", "e", "", "a b", "x", "Z-", "\u00e9"):
        if text.isascii():
            assert AsciiPattern(pattern).matches(text) == (wide.fullmatch(text) is not None), text


def test_lookahead_is_allowed_in_patterns_of_operators_alone() -> None:
    assert compile_java_pattern("(?!__).*").fullmatch("orders")
    assert not compile_java_pattern("(?!__).*").fullmatch("__offsets")
    with pytest.raises(PatternError, match="invalid perl operator"):
        compile_pattern("(?!__).*")


def test_a_refused_pattern_leaves_nothing_behind() -> None:
    import re2  # noqa: PLC0415

    for what in ("many states", "optional copies", "loops"):
        compile_pattern(ACCEPTED[what])
    assert re2._Regexp._make.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("import re2", True),
        ("import re\nre.compile(text)", True),
        ("import re\nre.search(text, 'a')", True),
        ("import re\nre.fullmatch(pattern=f'{text}a', string=x)", True),
        ("from re import compile", True),
        ("import re\nre.compile('a')\nre.sub(rf'{_NAME}|{re.escape(text)}', '', text)", False),
    ],
)
def test_the_check_sees_patterns_from_outside(source: str, is_refused: bool) -> None:
    import ast  # noqa: PLC0415

    found = list(patterns_from_outside(Path("x.py"), ast.parse(source)))
    assert bool(found) == is_refused
