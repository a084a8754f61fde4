"""The parser for parts of statements: names, options, and columns with the types of Flink and ksqlDB.

(id BIGINT NOT NULL, at TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR at AS at - INTERVAL '5' SECOND)
WITH ('topic' = 'orders', format = 'json')
"""

from __future__ import annotations

import re

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.model.specs import WrongValueError, parse_duration
from ottla.pipelines.sql.tables import RECORD_COLUMNS, Table, declared
from ottla.pipelines.sql.tokens import END, Token
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type

TYPES = {
    "varchar": "string", "char": "string", "text": "string", "bytes": "binary", "varbinary": "binary", "row": "struct",
    "timestamp_ltz": "timestamp",
}  # fmt: skip
WITHOUT_LENGTH = ("timestamp", "string", "binary")  # the length in TIMESTAMP(3) or VARCHAR(20) has no effect here
# ignored: the time zone is the one that the value has, or UTC
ZONES = (("WITH", "LOCAL", "TIME", "ZONE"), ("WITHOUT", "TIME", "ZONE"))
SAID_MORE = {"double": (("PRECISION",),), "timestamp": ZONES}
ENDS_TYPE = ("NOT", "NULL", "PRIMARY", "KEY", "COMMENT", "METADATA", "DEFAULT")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}


class Reader:
    """A parser that consumes tokens one by one. Every method raises SqlError."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.place = 0

    def __repr__(self) -> str:
        return f"Reader(at {self.peek().text!r}, {self.place} of {len(self.tokens)})"

    @property
    def position(self) -> int:
        """The position of the current token in the text."""
        return self.tokens[self.place].start if self.place < len(self.tokens) else len(self.text.rstrip())

    @property
    def is_at_end(self) -> bool:
        return self.place >= len(self.tokens)

    # single tokens

    def peek(self, distance: int = 0) -> Token:
        place = self.place + distance
        return self.tokens[place] if place < len(self.tokens) else END

    def take(self) -> Token:
        token = self.peek()
        self.place += 1
        return token

    def skip(self, *words: str) -> bool:
        """Consume these words if they come next. Return whether they did."""
        if any(self.peek(distance).word != word for distance, word in enumerate(words)):
            return False
        self.place += len(words)
        return True

    def skip_symbol(self, symbol: str) -> bool:
        if not self.peek().is_symbol(symbol):
            return False
        self.place += 1
        return True

    def expect(self, wanted: str) -> None:
        if not (self.skip(wanted) or self.skip_symbol(wanted)):
            raise SqlError(f"has {self._here()} where {wanted} should stand")

    def expect_end(self) -> None:
        if not self.is_at_end:
            raise SqlError(f"has {self._here()} where it should end")

    def word_of(self, *words: str) -> str:
        for word in words:
            if self.skip(word):
                return word
        raise SqlError(f"has {self._here()} where {' or '.join(words)} should stand")

    def name(self) -> str:
        """Return a name as written: names of topics are case-sensitive."""
        token = self.peek()
        if not token.name:
            raise SqlError(f"has {self._here()} where a name should stand")
        self.place += 1
        return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text

    def names(self) -> list[str]:
        self.expect("(")
        found = [self.name()]
        while self.skip_symbol(","):
            found.append(self.name())
        self.expect(")")
        return found

    # options

    def options(self) -> dict[str, str]:
        """Parse (key = value, …). A key may be quoted, or contain dots."""
        self.expect("(")
        found: dict[str, str] = {}
        while not self.skip_symbol(")"):
            if found:
                self.expect(",")
            key, value = self.option()
            if key in found:
                raise SqlError(f"has the option {key!r} twice")
            found[key] = value
        return found

    def option(self) -> tuple[str, str]:
        token = self.peek()
        if token.kind in ("string", "raw"):
            key = unquoted(self.take())
        else:
            key = self.name()
            while self.skip_symbol("."):
                key += f".{self.name()}"
        self.expect("=")
        value = self.peek()
        if value.kind not in ("string", "raw", "number", "word"):
            raise SqlError(f"has {self._here()} where the value of {key!r} should stand")
        self.place += 1
        return key.lower(), unquoted(value) if value.kind in ("string", "raw") else value.text

    # tables

    def table(self) -> Table:
        """Parse a table: its name, columns and options."""
        name = self.name()
        columns: dict[str, str] = {}
        details: dict[str, object] = {}
        if self.skip_symbol("("):
            self._columns(columns, details)
        options = self.options() if self.skip("WITH") else {}
        if "event_time" in options and "event_time" in details:
            raise SqlError("says the time of its rows twice: with WATERMARK and with event_time")
        known = {column.lower(): column for column in columns}
        for part in ("key", "required"):
            if part in details:
                details[part] = tuple(known.get(each.lower(), each) for each in details[part])  # type: ignore[attr-defined]
        match details.get("key"):
            case (str(key),) if key in columns:
                details["in_record_key"] = key
        table = declared(name, columns, options, **details)
        _check(table)
        return table

    def _columns(self, columns: dict[str, str], details: dict[str, object]) -> None:
        while True:
            if self.skip("PRIMARY", "KEY"):
                details["key"] = tuple(self.names())
                self.skip("NOT", "ENFORCED")
            elif self.skip("WATERMARK", "FOR"):
                self._watermark(details)
            else:
                self._column(columns, details)
            if self.skip_symbol(")"):
                return
            self.expect(",")

    def _column(self, columns: dict[str, str], details: dict[str, object]) -> None:
        name, begin = self.name(), self.position
        if name.lower() in {known.lower() for known in columns}:
            raise SqlError(f"has the column {name!r} twice")
        if self.peek().word == "AS":
            raise SqlError(f"computes the column {name!r}: leave it out, and compute it in the SELECT")
        try:
            kind = self._type()
            parse_type(kind)
        except SchemaError as wrong:
            problem = SqlError(f"column {name!r}: {wrong}")
            problem.at = begin
            raise problem from None
        columns[name] = kind
        if self.skip("NOT", "NULL"):
            details["required"] = (*details.get("required", ()), name)  # type: ignore[misc]
        if self.skip("PRIMARY", "KEY"):
            details["key"] = (name,)
            self.skip("NOT", "ENFORCED")
        elif self.skip("KEY"):
            details["in_record_key"] = name
        if self.peek().word == "METADATA":
            raise SqlError(f"has METADATA: leave it out, {', '.join(RECORD_COLUMNS)} can be selected as they are")
        if self.skip("COMMENT") and self.take().kind != "string":
            raise SqlError("has a COMMENT that is no text")

    def _type(self) -> str:
        """Return the text of a type up to the comma or bracket that ends the column, as our schemas write types."""
        pieces: list[str] = []
        depth = 0
        while not self.is_at_end:
            token = self.peek()
            if not depth and (token.text in (",", ")") or token.word in ENDS_TYPE):
                break
            if token.kind == "symbol":
                depth += len(token.text) * (
                    (token.text in ("<", "(")) - (set(token.text) <= {">"} or token.text == ")")
                )
            self.place += 1
            word = TYPES.get(token.text.lower(), token.text.lower()) if token.kind == "word" else token.text
            pieces.append(word)
            if word in WITHOUT_LENGTH and self.peek().is_symbol("(") and self.peek(2).is_symbol(")"):
                self.place += 3
            any(self.skip(*words) for words in SAID_MORE.get(word, ()))
        return re.sub(r" ?([<>(),:]) ?", r"\1", " ".join(pieces))

    def _watermark(self, details: dict[str, object]) -> None:
        """Parse WATERMARK FOR at AS at [- INTERVAL '5' SECOND]."""
        time = self.name()
        self.expect("AS")
        if self.name().lower() != time.lower():
            raise SqlError(f"has a watermark of another column than {time}")
        delay = "0 seconds"
        if self.skip_symbol("-"):
            self.expect("INTERVAL")
            count = self.take()
            delay = f"{unquoted(count) if count.kind == 'string' else count.text} {self.name()}".lower()
        details |= {"event_time": time, "delay": delay}

    def _here(self) -> str:
        return repr(self.peek().text) if not self.is_at_end else "nothing"


def unquoted(token: Token) -> str:
    """Return the text of a string token without its quotes."""
    if token.kind == "raw":
        return token.text[2:-1]
    if token.kind != "string":
        return token.text
    quote, body = token.text[0], token.text[1:-1]
    return re.sub(
        rf"\\(.)|{re.escape(quote)}{re.escape(quote)}",
        lambda found: ESCAPES.get(found[1], found[1]) if found[1] else quote,
        body,
    )


def _check(table: Table) -> None:
    known = {name.lower(): kind for name, kind in table.columns.items()}
    for name in (*table.key, *table.required):
        if table.columns and name.lower() not in known:
            raise SqlError(f"has the key {name!r}, which is none of its columns")
    time = (table.event_time or "").lower()
    if time and known and time not in known and time not in RECORD_COLUMNS:
        raise SqlError(f"has the time {table.event_time!r}, which is none of its columns")
    if time in known and known[time] != "timestamp":
        raise SqlError(
            f"has the time {table.event_time!r}, which is {known[time]} and not timestamp: declare it TIMESTAMP, "
            "and say timestamp_format = 'epoch milliseconds' if it is a number"
        )
    try:
        parse_duration(table.delay)
    except WrongValueError as wrong:
        raise SqlError(f"has the watermark {table.delay!r}, which is not {wrong}") from None
