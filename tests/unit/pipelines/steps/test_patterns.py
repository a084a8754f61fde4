"""Grok patterns with lines of the logs that they are for. RE2 itself matches them here, as Arrow does on Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ottla.pipelines.steps.parsing.patterns import PATTERNS, GrokError, read_grok

LINES = {
    "%{COMMONAPACHELOG}": (
        '203.0.113.7 - - [10/Oct/2025:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326',
        {
            "clientip": "203.0.113.7",
            "ident": "-",
            "auth": "-",
            "timestamp": "10/Oct/2025:13:55:36 -0700",
            "verb": "GET",
            "request": "/a",
            "httpversion": "1.0",
            "rawrequest": "",
            "response": "200",
            "bytes": "2326",
        },
    ),
    "%{NGINXACCESS}": (
        '198.51.100.2 - bob [01/Feb/2026:00:00:01 +0100] "POST /api?q=1 HTTP/2.0" 201 5 "-" "curl/8" "10.0.0.1" 0.004',
        {
            "clientip": "198.51.100.2",
            "ident": "-",
            "auth": "bob",
            "timestamp": "01/Feb/2026:00:00:01 +0100",
            "verb": "POST",
            "request": "/api?q=1",
            "httpversion": "2.0",
            "rawrequest": "",
            "response": "201",
            "bytes": "5",
            "referrer": "-",
            "agent": "curl/8",
        },
    ),
    "%{SYSLOGLINE}": (
        "<34>Oct  1 22:14:15 mymachine su[812]: 'su root' failed",
        {
            "priority": "34",
            "timestamp": "Oct  1 22:14:15",
            "logsource": "mymachine",
            "program": "su",
            "pid": "812",
            "message": "'su root' failed",
        },
    ),
    "%{SYSLOG5424LINE}": (
        '<165>1 2026-01-02T03:04:05.003Z host app 77 ID47 [a@1 k="v \\"q\\""] it happened',
        {
            "priority": "165",
            "version": "1",
            "timestamp": "2026-01-02T03:04:05.003Z",
            "logsource": "host",
            "program": "app",
            "pid": "77",
            "msgid": "ID47",
            "structured_data": '[a@1 k="v \\"q\\""]',
            "message": "it happened",
        },
    ),
    "%{HTTPDERROR}": (
        (
            "[Wed Oct 11 14:32:52.123 2025] [core:error] [pid 35708:tid 4328636416] "
            "[client 72.15.99.187:50] File does not exist"
        ),
        {
            "timestamp": "Wed Oct 11 14:32:52.123 2025",
            "module": "core",
            "loglevel": "error",
            "pid": "35708",
            "tid": "4328636416",
            "clientip": "72.15.99.187",
            "clientport": "50",
            "message": "File does not exist",
        },
    ),
    "%{NGINXERROR}": (
        "2026/01/02 03:04:05 [warn] 12#34: *56 upstream timed out",
        {
            "timestamp": "2026/01/02 03:04:05",
            "loglevel": "warn",
            "pid": "12",
            "tid": "34",
            "connection": "56",
            "message": "upstream timed out",
        },
    ),
    r"%{TIMESTAMP_ISO8601:at} %{LOGLEVEL:level} \[%{DATA:thread}\] %{NOTSPACE:logger} - %{GREEDYDATA:message}": (
        "2026-01-02 03:04:05,678 INFO [main thread] com.example.App - started in %d ms",
        {
            "at": "2026-01-02 03:04:05,678",
            "level": "INFO",
            "thread": "main thread",
            "logger": "com.example.App",
            "message": "started in %d ms",
        },
    ),
    "%{QUOTEDSTRING:q} %{UUID:id} %{EMAILADDRESS:mail} %{URI:uri} %{MAC:mac} %{PATH:path}": (
        (
            r'"a \" b" 123e4567-e89b-12d3-a456-426614174000 a.b@example.org '
            r"http://u:p@h.org:80/p?q=1 00:1b:44:11:3a:b7 /var/log/x"
        ),
        {
            "q": r'"a \" b"',
            "id": "123e4567-e89b-12d3-a456-426614174000",
            "mail": "a.b@example.org",
            "uri": "http://u:p@h.org:80/p?q=1",
            "mac": "00:1b:44:11:3a:b7",
            "path": "/var/log/x",
        },
    ),
    "%{IPV6:a} %{IPV4:b} %{NUMBER:n:double} (?<rest>.*)": (
        "fe80::1%eth0 255.0.0.1 -1.5e3 x y",
        {"a": "fe80::1%eth0", "b": "255.0.0.1", "n": "-1.5e3", "rest": "x y"},
    ),
}


def match(pattern: str, line: str) -> dict[str, str] | None:
    grok = read_grok(pattern)
    found = pc.extract_regex(pa.array([line]), pattern=grok.pattern)[0].as_py()
    return None if found is None else {field: found[group] for field, group in grok.groups}


@pytest.mark.parametrize("pattern", LINES)
def test_lines_become_their_fields(pattern: str) -> None:
    line, expected = LINES[pattern]
    assert match(pattern, line) == expected


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_is_one(name: str) -> None:
    read_grok(f"(?:%{{{name}}})(?P<rest>x)" if "rest" not in PATTERNS[name] else f"%{{{name}}}")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("%{IP:x}", "256.1.1.1"),
        ("%{INT:x}", "1.5"),
        ("%{LOGLEVEL:x}", "loud"),
        ("%{COMBINEDAPACHELOG}", "x" * 100_000),
        ("%{WORD:x}", ""),
    ],
)
def test_other_lines_do_not_match(pattern: str, line: str) -> None:
    assert match(pattern, line) is None


def test_types_are_those_that_the_pattern_names() -> None:
    assert read_grok("%{NUMBER:bytes:long} %{WORD:name}").types == {"bytes": "long"}


def test_patterns_of_your_own_may_use_the_others() -> None:
    grok = read_grok("%{PLATE:plate}", {"PLATE": "%{WORD}-%{INT}"})
    assert pc.extract_regex(pa.array(["AB-12"]), pattern=grok.pattern)[0].as_py() == {"g0": "AB-12"}


def test_names_with_brackets_become_plain_ones() -> None:
    assert [field for field, _ in read_grok("%{WORD:[http][method]} %{WORD:@version} %{WORD:a-b.c}").groups] == [
        "http_method",
        "version",
        "a_b_c",
    ]


@pytest.mark.parametrize(
    ("pattern", "own", "said"),
    [
        ("%{NOPE:x}", {}, "no pattern 'NOPE'"),
        ("%{WORD}", {}, "names no field"),
        ("%{WORD:x} %{WORD:x}", {}, "twice"),
        ("%{A:x}", {"A": "%{B}", "B": "%{A}"}, "recursive patterns"),
        ("%{WORD:x}(", {}, "is not a pattern"),
        ("(?=a)%{WORD:x}", {}, "look-around"),
        ("%{WORD:1x}", {}, "not a valid field name"),
        ("%{WORD:x:intt}", {}, "is not a type"),
    ],
)
def test_invalid_patterns_are_an_error(pattern: str, own: dict[str, str], said: str) -> None:
    with pytest.raises(GrokError, match=said):
        read_grok(pattern, own)
