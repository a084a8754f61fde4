"""Translation of Flink's window functions to Spark's, so that statements from Flink's tutorials work.

    GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)            ->  GROUP BY window(ts, '1 hour')
    HOP(ts, slide, size), SESSION(ts, gap)            ->  window(ts, size, slide), session_window(ts, gap)
    TUMBLE_START(ts, INTERVAL '1' HOUR), …_END        ->  window(ts, '1 hour').start, .end
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end
                                                      ->  FROM t GROUP BY window(ts, '10 minutes')
    the same without GROUP BY window_start            ->  FROM (SELECT *, window(…).start AS window_start, … FROM t)

The translation is pure and works token by token. Text without these functions is returned unchanged. A window function
that is not fully understood is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.tokens import END, Token, tokenize

KINDS: Final = ("TUMBLE", "HOP", "SESSION")
SIDES: Final = {"START": "start", "END": "end"}
UNITS: Final = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MILLISECOND")
NOT_KNOWN: Final = {
    "CUMULATE": "TUMBLE windows of its step, and sum(…) OVER (PARTITION BY … ORDER BY window_start) of their sums",
    **{f"{kind}_ROWTIME": f"{kind}_END(…) - INTERVAL 1 MILLISECOND" for kind in KINDS},
}
WINDOW_COLUMNS: Final = {"WINDOW_START": "start", "WINDOW_END": "end"}
BEHIND_GROUPS: Final = ("HAVING", "ORDER")
OF_ALL: Final = "ORDER OF ALL"  # after a UNION: columns of the result
CLAUSE_ENDS: Final = ("HAVING", "LIMIT", "WINDOW")
SET_OPERATORS: Final = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
ARGUMENTS: Final = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


class Source(NamedTuple):
    """A window function over a table, and the index after its last token."""

    kind: str
    token: Token
    table: str
    keys: tuple[str, ...]  # of PARTITION BY, in lower case
    window: str  # as Spark writes it
    after: int


class Window(NamedTuple):
    """A window as Spark writes it, and the index after its last token."""

    text: str
    after: int


def in_sparks_words(text: str) -> str:
    """Translate a query. Raises SqlError for windows that Spark does not have."""
    tokens = tokenize(text)
    words = {token.word for token in tokens}
    if not words & {*KINDS, *NOT_KNOWN, *(f"{kind}_{side}" for kind in KINDS for side in SIDES)}:
        return text
    return _Translation(tokens).run(0, len(tokens))


class _Translation:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    def run(self, begin: int, end: int) -> str:
        """Translate one query up to its closing bracket, SELECT by SELECT, because each has its own windows."""
        pieces: list[str] = []
        selects = self._selects(begin, end)
        for first, after in selects:
            pieces += self._one_select(first, after, OF_ALL if len(selects) > 1 else "ORDER")
        return " ".join(piece for piece in pieces if piece)

    def _one_select(self, begin: int, end: int, order: str) -> list[str]:
        pieces: list[str] = []
        window = self._window_of_groups(begin, end)
        clause, depth = "", 0
        place = begin
        while place < end:
            token = self.tokens[place]
            if token.word in NOT_KNOWN and self._at(place + 1).is_symbol("("):
                raise _at(token, SqlError(f"uses {token.word}: write {NOT_KNOWN[token.word]}"))
            is_by = token.word in ("GROUP", "ORDER") and self._at(place + 1).word == "BY"
            if depth == 0 and (is_by or token.word in CLAUSE_ENDS):
                clause = order if token.word == "ORDER" else token.word
            text, place = self._piece(place, window, clause, pieces)
            depth += (text == "(") - (text == ")")
            pieces.append(text)
        return pieces

    def _piece(self, place: int, window: str, clause: str, before: list[str]) -> tuple[str, int]:
        token = self.tokens[place]
        if token.is_symbol("(") and self._at(place + 1).word in ("SELECT", "WITH"):
            end = self._closing(place)
            return f"({self.run(place + 1, end)})", end + 1
        source = self._source(place)
        if source is not None:
            return (source.table if window else _with_window(source)), source.after
        name, _, side = token.word.rpartition("_")
        if self._at(place + 1).is_symbol("(") and (token.word in KINDS or (name in KINDS and side in SIDES)):
            found = self._function(name if side in SIDES else token.word, place)
            is_group = clause in BEHIND_GROUPS and found.text in before
            text = _of_group(found.text) if is_group else found.text
            return (f"{text}.{SIDES[side]}" if side in SIDES else text), found.after
        if window and token.word in WINDOW_COLUMNS:
            is_inside = before.count("(") > before.count(")")
            return self._column(place, window, clause, is_inside, before)
        return token.text, place + 1

    def _column(self, place: int, window: str, clause: str, is_inside: bool, before: list[str]) -> tuple[str, int]:
        """Translate window_start and window_end of groups. In GROUP BY the two together are the window."""
        token = self.tokens[place]
        if before and before[-1] == ".":  # t.window_start
            del before[-2:]
        if clause == OF_ALL:
            return token.text, place + 1
        if clause in BEHIND_GROUPS:
            return f"{_of_group(window)}.{WINDOW_COLUMNS[token.word]}", place + 1
        if clause != "GROUP":
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

    def _selects(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Split a query at UNION and other set operators."""
        cuts = [
            place
            for place in self._outside(begin, end)
            if self.tokens[place].word in SET_OPERATORS and not self.tokens[place - 1].is_symbol("*")
        ]
        return list(pairwise([begin, *cuts, end]))

    def _window_of_groups(self, begin: int, end: int) -> str:
        """Return the window by which this SELECT groups, as Spark's function. If there is none, the rows have windows
        as columns."""
        places = self._outside(begin, end)
        sources = [source for place in places if (source := self._source(place)) is not None]
        groups = self._groups(places)
        is_grouped = any(token.word in WINDOW_COLUMNS for token in groups)
        for source in sources:
            if source.kind == "SESSION":
                self._check_session(source, groups if is_grouped and len(sources) == 1 else [])
        return sources[0].window if is_grouped and len(sources) == 1 else ""

    def _check_session(self, source: Source, groups: list[Token]) -> None:
        """Check that the groups equal the PARTITION BY: Spark has sessions for each group, Flink for each PARTITION
        BY."""
        if not groups:
            raise _at(
                source.token, SqlError("has a SESSION that is not grouped: write GROUP BY …, window_start, window_end")
            )
        others = {token.name for token in groups if token.name} - {name.lower() for name in WINDOW_COLUMNS}
        if others != set(source.keys):
            keys = f" PARTITION BY {', '.join(sorted(others))}" if others else ""
            raise _at(
                source.token,
                SqlError(
                    f"has a SESSION of other columns than it groups by: write SESSION(TABLE {source.table}{keys}, …), "
                    "and GROUP BY the same columns, window_start and window_end"
                ),
            )

    def _groups(self, places: list[int]) -> list[Token]:
        """Return the tokens of GROUP BY without aliases of tables."""
        found: list[Token] = []
        is_grouping = False
        for place in places:
            token = self.tokens[place]
            if token.word == "GROUP" and self._at(place + 1).word == "BY":
                is_grouping = True
            elif token.word in CLAUSE_ENDS or (token.word == "ORDER" and self._at(place + 1).word == "BY"):
                is_grouping = False
            elif is_grouping and token.word != "BY" and not self._at(place + 1).is_symbol("."):
                found.append(token)
        return found

    def _outside(self, begin: int, end: int) -> list[int]:
        """Return the indexes outside all brackets."""
        found: list[int] = []
        depth = 0
        for place in range(begin, end):
            token = self.tokens[place]
            depth += token.is_symbol("(") - token.is_symbol(")")
            if depth == 0 and not token.is_symbol(")"):
                found.append(place)
        return found

    def _source(self, place: int) -> Source | None:
        """Parse TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size)), with or without the outer TABLE."""
        is_wrapped = self._at(place).word == "TABLE" and self._at(place + 1).is_symbol("(")
        at = place + 2 if is_wrapped else place
        token = self._at(at)
        kind = token.word
        if kind not in KINDS or not self._at(at + 1).is_symbol("("):
            return None
        end = self._closing(at + 1)
        arguments = _in_order(self._arguments(at + 1, end), token)
        if not arguments[0] or arguments[0][0].word != "TABLE":
            return None
        table, keys = _table_and_keys(arguments[0][1:], token)
        if keys and kind != "SESSION":
            raise _at(token, SqlError(f"has a {kind} with PARTITION BY, which only SESSION has: leave it out"))
        descriptor = arguments[1] if len(arguments) > 1 else []
        if len(descriptor) != 4 or descriptor[0].word != "DESCRIPTOR":
            raise _at(token, SqlError(f"has a {kind} without DESCRIPTOR(time column)"))
        window = self._window(kind, token, descriptor[2].text, arguments[2:])
        return Source(kind, token, table, keys, window, self._closing(place + 1) + 1 if is_wrapped else end + 1)

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
        return f"window({time}, {', '.join(reversed(lengths))})"  # Flink has the slide first, Spark the size

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
    """Translate INTERVAL '10' MINUTES to the argument of Spark's windows."""
    unit = tokens[2].word.removesuffix("S") if len(tokens) == 3 else ""
    if not tokens or tokens[0].word != "INTERVAL" or unit not in UNITS:
        text = " ".join(token.text for token in tokens)
        raise _at(tokens[0] if tokens else END, SqlError(f"has {text!r} in {kind}: write INTERVAL '10' MINUTE"))
    return f"'{tokens[1].text.strip(chr(39))} {unit.lower()}'"


def _in_order(arguments: list[list[Token]], token: Token) -> list[list[Token]]:
    """Put named arguments (DATA => TABLE t) into the order of positional ones."""
    named = {each[0].word: each[2:] for each in arguments if len(each) > 2 and each[1].is_symbol("=>")}
    if not named:
        return arguments
    wanted = ARGUMENTS[token.word]
    if len(named) != len(arguments) or set(named) != set(wanted):
        words = ", ".join(f"{name} => …" for name in wanted)
        raise _at(token, SqlError(f"has a {token.word} with other arguments than {words}"))
    return [named[name] for name in wanted]


def _table_and_keys(tokens: list[Token], token: Token) -> tuple[str, tuple[str, ...]]:
    """Parse `t` or `t PARTITION BY a, b`."""
    if len(tokens) > 3 and [each.word for each in tokens[1:3]] == ["PARTITION", "BY"]:
        return tokens[0].text, tuple(each.name for each in tokens[3:] if each.name)
    if len(tokens) != 1:
        raise _at(token, SqlError(f"has a {token.word} of more than a table: put joins and filters around it"))
    return tokens[0].text, ()


def _with_window(source: Source) -> str:
    """Return a subquery that has each row once for every window that contains it."""
    columns = ", ".join(f"{source.window}.{side} AS {name.lower()}" for name, side in WINDOW_COLUMNS.items())
    return f"(SELECT *, {columns} FROM {source.table})"  # noqa: S608 (checked as part of the query)


def _of_group(window: str) -> str:
    """Refer to the window by its name: after GROUP BY Spark no longer knows the time column of the window."""
    return window.partition("(")[0]


def _last(pieces: list[str], word: str) -> int:
    return max((at for at, piece in enumerate(pieces) if piece.upper() == word), default=0)


def _at(token: Token, problem: SqlError) -> SqlError:
    problem.at = token.start
    return problem
