"""A search with the prefilter finds exactly what the reference implementation finds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.operations.messages.expressions.evaluator import (
    NO_DOCUMENT,
    compile_expression,
    read_json,
)
from ottla.operations.messages.expressions.parser import parse
from ottla.operations.messages.expressions.prefilter import prefilter_of


class Plain:
    """A message whose documents are its own JSON."""

    def __init__(self, key: bytes | None, value: bytes | None, headers: Any = (), offset: int = 0) -> None:
        self.partition = 0
        self.offset = offset
        self.timestamp_ms = 1_700_000_000_000
        self.key = key
        self.value = value
        self.headers = headers

    def document(self, part: str) -> Any:
        data = self.key if part == "key" else self.value
        return NO_DOCUMENT if data is None else read_json(data)

    def raw_bytes(self) -> bytes | None:
        return None

    def document_texts(self) -> list[bytes]:
        return []


def found(expression: str, messages: list[Plain]) -> tuple[list[int], list[int]]:
    """The rows that the evaluator matches, and the candidates of the prefilter."""
    tree = parse(expression)
    matcher = compile_expression(tree)
    slow = [row for row, message in enumerate(messages) if matcher(message)]
    prefilter = prefilter_of(tree)
    if prefilter is None:
        return slow, slow
    data = bytearray(b"\x7f")
    starts = []
    for message in messages:
        starts.append(len(data))
        data += (message.key or b"") + b"\x02" + (message.value or b"") + b"\x04"
        for name, value in message.headers:
            data += name.encode() + b"\x02" + (value or b"")
        data += b"\x02\x06\x08"
    rows = list(prefilter.candidates(bytes(data), starts, len(data)))
    assert rows == sorted(set(rows))
    return slow, [row for row in rows if matcher(messages[row])]


letters = st.sampled_from('ab420.-e"\\/ü😀\n\té{}[]:, nulltrue')
words = st.text(letters, max_size=6)
names = st.sampled_from(["id", "a", "ü", "user", "0", 'q"q', "x.y", "😀"])
numbers = st.sampled_from(
    [
        "42",
        "42.0",
        "4.2e1",
        "420e-1",
        "0.42E2",
        "0.0042e4",
        "-42",
        "0",
        "-0",
        "0e7",
        "4200",
        "1e999999999999999999999",
        "41.99999999999999999999999",
        "NaN",
    ]
)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """A JSON string in a random notation."""
    out = []
    for character in text:
        units = character.encode("utf-16-be")
        escaped = "".join(f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))
        ways = [json.dumps(character, ensure_ascii=False)[1:-1], escaped, escaped.replace("\\U", "\\u")]
        ways.append("".join(f"\\u{units[index : index + 2].hex().upper()}" for index in range(0, len(units), 2)))
        out.append(draw(st.sampled_from(ways)))
    return f'"{"".join(out)}"'


@st.composite
def documents(draw: st.DrawFn, depth: int = 2) -> str:
    """JSON text with whitespace, escapes and unusual numbers."""
    blank = draw(st.sampled_from(["", " ", "\n\t"]))
    kinds = ["number", "string", "word"] + (["object", "array"] * 2 if depth else [])
    match draw(st.sampled_from(kinds)):
        case "number":
            return draw(numbers)
        case "string":
            text = draw(st.one_of(words, st.sampled_from(["42", "4.2e1", "x", "Müller", "true"])))
            return draw(spelled(text))
        case "word":
            return draw(st.sampled_from(["true", "false", "null"]))
        case "array":
            items = draw(st.lists(documents(depth - 1), max_size=3))
            return f"[{blank}{f',{blank}'.join(items)}]"
    pairs = draw(st.lists(st.tuples(names, documents(depth - 1)), max_size=3))
    return "{" + ",".join(f"{blank}{draw(spelled(name))}{blank}:{blank}{item}" for name, item in pairs) + "}"


contents = st.one_of(
    st.none(), words.map(str.encode), st.binary(max_size=8), documents().map(str.encode), numbers.map(str.encode)
)
headers = st.lists(st.tuples(names, st.one_of(st.none(), words.map(str.encode))), max_size=2)
messages = st.lists(st.builds(Plain, contents, contents, headers), max_size=6)


@st.composite
def terms(draw: st.DrawFn) -> str:
    quoted = json.dumps(draw(words.filter(bool)), ensure_ascii=draw(st.booleans()))
    literal = draw(
        st.one_of(numbers, st.sampled_from(["null", "true", '"x"', "x", '"42"', '""', '"Müller"']), st.just(quoted))
    )
    field = draw(
        st.sampled_from(
            [
                "key",
                "value",
                "header.id",
                'header."ü"',
                "value.id",
                "value.user.id",
                "key.a",
                "value.a.0",
                "value.0.id",
                'value."q\\"q"',
                'value."x.y".id',
                'value."😀"',
                "value.ü",
            ]
        )
    )
    sign = draw(st.sampled_from(["=", "=", "=", "!=", "<", ">="]))
    if literal in ("null", "true"):
        sign = "="
    match draw(st.sampled_from(["text", "compare", "compare", "pattern"])):
        case "text":
            return quoted
        case "compare":
            return f"{field} {sign} {literal}"
    return draw(
        st.sampled_from(
            [
                "/4.?2/",
                "/^a/",
                "/(?i)B|ü/",
                "/a.*2/",
                "/[^a]0/",
                "/\\bn/",
                "/é/i",
                "/a?/",
                "value.id ~ /4/",
                "header.id ~ /a/",
                "key ~ /^4/",
            ]
        )
    )


expressions = st.recursive(
    terms(),
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=3,
)


@settings(max_examples=200, deadline=None)
@given(expressions, messages)
def test_the_prefilter_never_loses_a_hit(expression: str, many: list[Plain]) -> None:
    slow, fast = found(expression, many)
    assert slow == fast


@st.composite
def hits(draw: st.DrawFn) -> tuple[str, Plain]:
    """A message in a random notation, and an expression that matches it."""
    name = draw(names)
    blank = draw(st.sampled_from(["", " ", "\n\t"]))
    if draw(st.booleans()):
        item, literal = draw(st.sampled_from(["42", "42.0", "4.2e1", "420e-1", "0.42E2", "0.0042e4"])), "42"
        item = draw(st.sampled_from([item, f'"{item}"', draw(spelled(item)), f"[1,{item}]"]))
    else:
        text = draw(words.filter(bool))
        item, literal = draw(spelled(text)), json.dumps(text, ensure_ascii=draw(st.booleans()))
    expression = f"value.{json.dumps(name)} = {literal}" if literal == "42" or draw(st.booleans()) else literal
    value = "{" + f"{blank}{draw(spelled(name))}{blank}:{blank}{item}{blank}" + "}"
    return expression, Plain(draw(contents), value.encode())


@settings(max_examples=300, deadline=None)
@given(hits(), messages, messages)
def test_what_is_there_is_found(hit: tuple[str, Plain], before: list[Plain], after: list[Plain]) -> None:
    expression, message = hit
    slow, fast = found(expression, [*before, message, *after])
    assert len(before) in slow, "the message was made to be meant"
    assert slow == fast


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("Müller", '{"name":"M\\u00fcller"}'),
        ("Müller", '{"name":"M\\u00FCller"}'),
        ("A", '"\\u0041"'),
        ("😀", '"\\ud83d\\ude00"'),
        ('"a/b"', '"a\\/b"'),
        ("value.id = 42", '{"id":42}'),
        ("value.id = 42", '{"id" :\n42.0}'),
        ("value.id = 42", '{"id":4.2e1}'),
        ("value.id = 42", '{"id":"42"}'),
        ("value.id = 42", '{"id":"4\\u0032"}'),
        ("value.id = 42", '{"\\u0069d":420E-1}'),
        ("value.id = 42", '{"id":[1,{"x":1},42]}'),
        ("value.items.id = 42", '{"items":[{"id":1},{"id":42}]}'),
        ("value.items.1.id = 42", '{"items":[{"id":1},{"id":42}]}'),
        ("value.id = 0", '{"id":-0.0}'),
        ("value.big = 12345678901234567890123", '{"big":12345678901234567890123}'),
        ("value.ok = true", '{"ok": true}'),
        ("value.gone = null", '{"gone": null}'),
        ("value.id < 43 and value.id > 41", '{"id":42}'),
        ("value.name ~ /^M.*r$/", '{"name":"M\\u00fcller"}'),
        ('value."a.b" = x', '{"a.b":"x"}'),
        ("value = 42", "42.0"),
        ('value = "x"', '"x"'),
        ("value.a != 1", "{}"),
        ("'" + "é" * 3000 + "'", "é" * 3000),
        ("'" + "é" * 3000 + "'", '"' + "\\u00e9" * 3000 + '"'),
    ],
)
def test_spellings_that_are_the_same(expression: str, value: str) -> None:
    message = Plain(b"k", value.encode())
    assert found(expression, [Plain(None, None), message]) == ([1], [1]) or "!=" in expression
    slow, fast = found(expression, [message, message])
    assert slow == fast == [0, 1]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("value.id = 42", '{"id":421}'),
        ("value.id = 42", '{"id":41.99999999999999999999}'),
        ('value.id = "42"', '{"id":42}'),
        ("value.id = 42", '{"user":{"id":42}}'),
        ("value.id = 1", '{"id":true}'),
        ("A", '"\\\\u0041"'),
        ("value.id = 42", '{"id":42'),
        ("value.id > 5", '{"id":NaN}'),
        ("not A", "A"),
    ],
)
def test_what_is_not_the_same(expression: str, value: str) -> None:
    assert found(expression, [Plain(None, value.encode())]) == ([], [])


LIMITS = [
    "0", "-0", "0.0", "0.5", "-0.5", "1", "-1", "9", "-9", "9.9", "10", "-10", "19", "99", "99.9", "-99.9", "100",
    "101", "-100", "109", "110", "190", "209", "999", "1000", "1e3", "-1e-3", "123456", "-123456",
    "99999999999999999", "1e17", "1e18", "-1e18", "1e400", "-1e400", "1e-400", "88", "180",
]  # fmt: skip
WRITTEN = [
    *LIMITS,
    "Infinity", "-Infinity", "NaN", "1E3", "-0.0", "0e0", "0e9", "1e0", "9.99", "10.0", "-1E-3",
    "12345678901234567890", "1e99999999999", "89",
]  # fmt: skip


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_each_number_is_found_beyond_each_limit(operator: str) -> None:
    rows = [Plain(None, b'{"id":%s}' % number.encode()) for number in WRITTEN]
    rows += [Plain(None, b'{"id": "%s"}' % number.encode()) for number in WRITTEN]
    for limit in LIMITS:
        slow, fast = found(f"value.id {operator} {limit}", rows)
        assert fast == slow, limit


limits = st.one_of(
    st.integers(-2_000, 2_000).map(str),
    st.integers(-(10**21), 10**21).map(str),
    st.decimals(-1_000, 1_000, places=3).map(str),
    st.sampled_from(
        ["0", "-0", "0.0", "1e3", "-1e-3", "9", "10", "99.9", "100", "-99", "1e17", "1e18", "1e400", "0.5"]
    ),
)
near = st.one_of(
    limits, numbers, st.sampled_from(["Infinity", "-Infinity", "1E3", "-0.0", "0e0", "12345678901234567890"])
)


@st.composite
def nearby(draw: st.DrawFn) -> str:
    """A document with numbers under the searched name: once, twice, in arrays, as text, nested."""
    number = draw(near)
    item = draw(
        st.sampled_from([number, f"[{number}]", f'[1,"{number}"]', f'{{"id":{number}}}', f"[[{number}], null]", "null"])
    )
    text = draw(spelled(number))
    pairs = draw(st.lists(st.sampled_from([item, text, number, '""', '"x1"', "{}"]), min_size=1, max_size=3))
    names = [draw(spelled(draw(st.sampled_from(["id", "id", "ix", "user"])))) for _ in pairs]
    blank = draw(st.sampled_from(["", " ", "\n"]))
    inside = ",".join(f"{name}{blank}:{blank}{value}" for name, value in zip(names, pairs, strict=True))
    return draw(st.sampled_from([f"{{{inside}}}", f'{{"user":{{{inside}}}}}', f"[{{{inside}}}]"]))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.builds(Plain, st.none(), nearby().map(str.encode)), min_size=1, max_size=5),
    st.sampled_from(["<", "<=", ">", ">="]),
    limits,
    st.sampled_from(["value.id", "value.user.id"]),
)
def test_numbers_beyond_a_limit_are_never_lost(rows: list[Plain], operator: str, limit: str, field: str) -> None:
    slow, fast = found(f"{field} {operator} {limit}", rows)
    assert fast == slow


@pytest.mark.parametrize(
    ("expression", "left"),
    [("value.id > 41", [2, 3]), ("value.id >= 100", [2]), ("value.id < 0", [4]), ("value.id <= -7", [4])],
)
def test_numbers_within_a_limit_are_ruled_out_without_decoding(expression: str, left: list[int]) -> None:
    values = [b'{"id": 7}', b'{"id": "no number"}', b'{"id": 1000}', b'{"id": 42.5}', b'{"id": -8}', b'{"id": null}']
    data, starts = bytearray(), []
    for value in values:
        starts.append(len(data))
        data += value
    prefilter = prefilter_of(parse(expression))
    assert prefilter is not None
    assert list(prefilter.candidates(bytes(data), starts, len(data))) == left
