"""Flink's windows in Spark's words, so that what its tutorials say can be typed.

    GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)            ->  GROUP BY window(ts, '1 hour')
    HOP(ts, slide, size), SESSION(ts, gap)            ->  window(ts, size, slide), session_window(ts, gap)
    TUMBLE_START(ts, INTERVAL '1' HOUR), …_END        ->  window(ts, '1 hour').start, .end
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end
                                                      ->  FROM t GROUP BY window(ts, '10 minutes')

Rule: pure, token by token; text that has none of it comes back as it was. What is only half understood is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.pipelines.steps.sql_tokens import END, SqlError, Token, tokenize

KINDS: Final = ("TUMBLE", "HOP", "SESSION")
SIDES: Final = {"START": "start", "END": "end"}
UNITS: Final = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MILLISECOND")
NOT_KNOWN: Final = ("CUMULATE", "WINDOW_TIME", "TUMBLE_ROWTIME", "HOP_ROWTIME", "SESSION_ROWTIME")
WINDOW_COLUMNS: Final = {"WINDOW_START": "start", "WINDOW_END": "end"}
CLAUSE_ENDS: Final = ("HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "WINDOW")


class Window(NamedTuple):
    """In Spark's words, and the token behind it."""

    text: str
    after: int


def in_sparks_words(text: str) -> str:
    """Raises SqlError for windows that Spark does not have."""
    tokens = tokenize(text)
    words = {token.word for token in tokens}
    if not words & {*KINDS, *NOT_KNOWN, *(f"{kind}_{side}" for kind in KINDS for side in SIDES)}:
        return text
    return _Translation(tokens).run(0, len(tokens))[0]


class _Translation:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    def run(self, begin: int, end: int) -> tuple[str, str]:
        """One query, up to its closing bracket; and the window of its rows, if they come from a function of windows."""
        pieces: list[str] = []
        window = self._window_of_rows(begin, end)
        is_grouping = False
        place = begin
        while place < end:
            token = self.tokens[place]
            if token.word in NOT_KNOWN and self._at(place + 1).is_symbol("("):
                raise _at(token, SqlError(f"uses {token.word}, which Spark does not have"))
            if token.word == "GROUP" and self._at(place + 1).word == "BY":
                is_grouping = True
            elif token.word in CLAUSE_ENDS:
                is_grouping = False
            text, place = self._piece(place, window, is_grouping, pieces)
            pieces.append(text)
        return " ".join(piece for piece in pieces if piece), window

    def _piece(self, place: int, window: str, is_grouping: bool, before: list[str]) -> tuple[str, int]:
        token = self.tokens[place]
        if token.is_symbol("(") and self._at(place + 1).word in ("SELECT", "WITH"):
            end = self._closing(place)
            return f"({self.run(place + 1, end)[0]})", end + 1
        source = self._source(place)
        if source is not None:
            return source[0], source[2]
        name, _, side = token.word.rpartition("_")
        if self._at(place + 1).is_symbol("(") and (token.word in KINDS or (name in KINDS and side in SIDES)):
            found = self._function(name if side in SIDES else token.word, place)
            return (f"{found.text}.{SIDES[side]}" if side in SIDES else found.text), found.after
        if window and token.word in WINDOW_COLUMNS:
            is_inside = before.count("(") > before.count(")")
            return self._column(place, window, is_grouping, is_inside, before)
        return token.text, place + 1

    def _column(
        self, place: int, window: str, is_grouping: bool, is_inside: bool, before: list[str]
    ) -> tuple[str, int]:
        """window_start and window_end of a function of windows: in GROUP BY both together are the window."""
        token = self.tokens[place]
        if before and before[-1] == ".":  # t.window_start
            del before[-2:]
        if not is_grouping:
            text = f"{window}.{WINDOW_COLUMNS[token.word]}"
            after = self._at(place + 1)
            ends_item = after.is_symbol(",") or after.word == "FROM"
            is_item = ends_item and bool(before) and before[-1].upper() in (",", "SELECT", "DISTINCT") and not is_inside
            return (f"{text} AS {token.text.lower()}" if is_item else text), place + 1
        if window not in before[_last(before, "BY") :]:
            return window, place + 1
        if before[-1] == ",":
            before.pop()
        return "", place + 1

    # ---- functions of windows

    def _window_of_rows(self, begin: int, end: int) -> str:
        depth = 0
        for place in range(begin, end):
            token = self.tokens[place]
            if token.is_symbol("("):
                depth += 1
            elif token.is_symbol(")"):
                depth -= 1
            elif depth == 0:
                source = self._source(place)
                if source is not None:
                    return source[1]
        return ""

    def _source(self, place: int) -> tuple[str, str, int] | None:
        """TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size)), or without the outer TABLE: table, window, and what follows."""
        is_wrapped = self._at(place).word == "TABLE" and self._at(place + 1).is_symbol("(")
        at = place + 2 if is_wrapped else place
        kind = self._at(at).word
        if kind not in KINDS or not self._at(at + 1).is_symbol("(") or self._at(at + 2).word != "TABLE":
            return None
        end = self._closing(at + 1)
        arguments = self._arguments(at + 1, end)
        table = arguments[0][1:]
        if len(table) != 1:
            raise _at(self._at(at), SqlError(f"has a {kind} of more than a table: PARTITION BY goes into GROUP BY"))
        descriptor = arguments[1] if len(arguments) > 1 else []
        if len(descriptor) != 4 or descriptor[0].word != "DESCRIPTOR":
            raise _at(self._at(at), SqlError(f"has a {kind} without DESCRIPTOR(time column)"))
        window = self._window(kind, self._at(at), descriptor[2].text, arguments[2:])
        return table[0].text, window, self._closing(place + 1) + 1 if is_wrapped else end + 1

    def _function(self, kind: str, place: int) -> Window:
        end = self._closing(place + 1)
        first, *others = self._arguments(place + 1, end)
        time = "".join(token.text for token in first)
        return Window(self._window(kind, self.tokens[place], time, others), end + 1)

    def _window(self, kind: str, token: Token, time: str, arguments: list[list[Token]]) -> str:
        lengths = [_interval(each, kind) for each in arguments]
        if len(lengths) != (2 if kind == "HOP" else 1):
            raise _at(token, SqlError(f"has a {kind} with {len(lengths)} intervals"))
        if kind == "SESSION":
            return f"session_window({time}, {lengths[0]})"
        return f"window({time}, {', '.join(reversed(lengths))})"  # Flink names the slide first, Spark the size

    # ---- tokens

    def _arguments(self, opening: int, closing: int) -> list[list[Token]]:
        found: list[list[Token]] = [[]]
        depth = 0
        for token in self.tokens[opening + 1 : closing]:
            if token.is_symbol(",") and depth == 0:
                found.append([])
                continue
            depth += token.is_symbol("(") - token.is_symbol(")")
            found[-1].append(token)
        return found

    def _closing(self, opening: int) -> int:
        depth = 0
        for place in range(opening, len(self.tokens)):
            depth += self.tokens[place].is_symbol("(") - self.tokens[place].is_symbol(")")
            if depth == 0:
                return place
        raise SqlError("has a bracket that is never closed")

    def _at(self, place: int) -> Token:
        return self.tokens[place] if place < len(self.tokens) else END


def _interval(tokens: list[Token], kind: str) -> str:
    """INTERVAL '10' MINUTES as Spark's windows take it."""
    unit = tokens[2].word.removesuffix("S") if len(tokens) == 3 else ""
    if not tokens or tokens[0].word != "INTERVAL" or unit not in UNITS:
        text = " ".join(token.text for token in tokens)
        raise _at(tokens[0] if tokens else END, SqlError(f"has {text!r} in {kind}: write INTERVAL '10' MINUTE"))
    return f"'{tokens[1].text.strip(chr(39))} {unit.lower()}'"


def _last(pieces: list[str], word: str) -> int:
    return max((at for at, piece in enumerate(pieces) if piece.upper() == word), default=0)


def _at(token: Token, problem: SqlError) -> SqlError:
    problem.at = token.start
    return problem
