"""One SELECT over named streams, read token by token: every position of a table is checked.

The query for Spark is rebuilt from the checked tokens, with new names for all tables. So every name that was parsed as
a table is one, and no other name can reach Spark's catalog or a file (`parquet.`/etc/x``).

Nearly every keyword may also be a name in Spark, so `FROM stream where (a), parquet.x` has two readings. Any form that
could hide a table in the second reading is rejected: a comma after WHERE, an alias that is a keyword, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.pipelines.steps.sql_safety import check_clock, check_from, check_function
from ottla.pipelines.steps.sql_tokens import END, SqlError, Token, UnknownTableError, tokenize

STREAM = "stream"
TABLE_FUNCTIONS = {
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "variant_explode", "variant_explode_outer",
}  # fmt: skip
REFUSED = {
    "TABLE", "VALUES", "IDENTIFIER", "INSERT", "MERGE", "UPDATE", "DELETE", "OVERWRITE", "DIRECTORY", "RECURSIVE",
    "TABLESAMPLE",
}  # fmt: skip
WITH_BY = {"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"}
WITHOUT_COMMA = {"WHERE", "HAVING", "LIMIT", "OFFSET"}
SET_OPERATORS = {"UNION", "EXCEPT", "INTERSECT", "MINUS"}
CLAUSES = {*WITH_BY, *WITHOUT_COMMA, *SET_OPERATORS, "SELECT", "WITH"}
JOINS = {
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "CROSS",
    "OUTER",
    "SEMI",
    "ANTI",
    "NATURAL",
    "ON",
    "USING",
    "LATERAL",
}
NO_ALIAS = {*CLAUSES, *JOINS, "FROM", "WINDOW", "PIVOT", "UNPIVOT"}


@dataclass
class Level:
    """The contents of one pair of brackets."""

    clause: str = "LIST"  # the current clause; LIST where commas have no meaning here
    expects_table: bool = False
    function: str = ""


@dataclass
class Query:
    """The tokens as text; `tables` are the positions of names to replace."""

    pieces: list[str] = field(default_factory=list)
    tables: dict[int, str] = field(default_factory=dict)  # index in pieces -> name
    starts: list[int] = field(default_factory=list)  # position of each piece in the text

    def text(self, names: Mapping[str, str]) -> str:
        """With these names for the tables, and every brace doubled: Spark's `sql` inserts tables at {name}."""
        pieces = (
            names[self.tables[at]] if at in self.tables else _doubled(text) for at, text in enumerate(self.pieces)
        )
        return " ".join(pieces)

    def renamed(self, names: Mapping[str, str]) -> str:
        """With these names for the tables, as the query of another step."""
        return " ".join(names[self.tables[at]] if at in self.tables else text for at, text in enumerate(self.pieces))


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def rewrite_query(text: str, tables: Sequence[str] = ()) -> Query:
    """Raises SqlError with the reason why the text is not allowed."""
    tokens = tokenize(text)
    if not tokens or tokens[0].word not in ("SELECT", "WITH"):
        raise SqlError("is not a SELECT")
    return _Reader(tokens, {STREAM, *(table.lower() for table in tables)}).read()


class _Reader:
    def __init__(self, tokens: list[Token], known: set[str]) -> None:
        self.tokens = tokens
        self.known = known
        self.own = _own_names(tokens)
        self.levels = [Level()]
        self.query = Query()
        self.place = 0
        if self.own & known:
            raise SqlError(f"gives the name {min(self.own & known)!r} to something else")

    def __repr__(self) -> str:
        return f"_Reader(at {self.place} of {len(self.tokens)}, {self.levels[-1]})"

    def read(self) -> Query:
        for place, token in enumerate(self.tokens):
            self.place = place
            level = self.levels[-1]
            is_table = level.expects_table
            try:
                self._step(token, level)
            except SqlError as problem:
                problem.at = token.start
                raise
            self._write(token, is_table and token.name in self.known and not self._after().is_symbol("("))
        if self.levels[-1].expects_table:
            raise SqlError("ends where a table should stand")
        return self.query

    def _step(self, token: Token, level: Level) -> None:
        if token.word in REFUSED and not self._before().is_symbol("."):
            raise SqlError(f"uses {token.word}, which is not allowed (a column of that name needs `backticks`)")
        if not level.expects_table:
            check_clock(self.tokens, self.place)
        if level.expects_table:
            self._table(token, level)
        elif token.is_symbol("("):
            self._open(level)
        elif token.is_symbol(")"):
            self.levels.pop()
        elif token.is_symbol(","):
            self._comma(level)
        elif token.word:
            self._word(token, level)
        elif token.name and self._after().is_symbol("("):
            check_function(self.tokens, self.place)

    def _write(self, token: Token, is_table: bool) -> None:
        """Always write an alias, so that no keyword after the table can be read as one."""
        if not is_table:
            self._piece(token.text, token)
            return
        self.query.tables[len(self.query.pieces)] = token.name
        self._piece(token.name, token)
        after = self._after()
        if after.word != "AS" and not (after.name and after.word not in NO_ALIAS):
            self._piece("AS", token)
            self._piece(f"`{token.name}`", token)

    def _piece(self, text: str, token: Token) -> None:
        self.query.pieces.append(text)
        self.query.starts.append(token.start)

    # Table positions

    def _table(self, token: Token, level: Level) -> None:
        after = self._after()
        if token.word == "LATERAL":
            return
        level.expects_table = False
        if token.is_symbol("("):
            is_query = after.word in ("SELECT", "WITH")
            self.levels.append(Level() if is_query else Level(clause="FROM", expects_table=True))
        elif not token.name:
            raise SqlError(f"has {token.text!r} where a table should stand")
        elif after.is_symbol("("):
            if token.name not in TABLE_FUNCTIONS:
                raise SqlError(f"reads {token.name}(), which is not allowed")
        elif after.is_symbol(".") or token.name not in self.known | self.own:
            raise UnknownTableError(self._chain(), self.known)

    # Words and brackets

    def _open(self, level: Level) -> None:
        after = self._after()
        if after.word == "FROM":
            raise SqlError("begins a query with FROM")
        if level.clause in SET_OPERATORS and after.word not in ("SELECT", "WITH") and not after.is_symbol("("):
            raise SqlError(f"has {level.clause} without a SELECT behind it")
        self.levels.append(Level(function=self._before().name))

    def _comma(self, level: Level) -> None:
        if level.clause == "FROM":
            level.expects_table = True
        elif level.clause in WITHOUT_COMMA:
            raise SqlError(f"has a comma after {level.clause}")

    def _word(self, token: Token, level: Level) -> None:
        word, before, after = token.word, self._before(), self._after()
        if before.is_symbol("."):  # a column; a function with a catalog prefix could be any
            if after.is_symbol("("):
                check_function(self.tokens, self.place)
            return
        if before.word == "AS" and word in NO_ALIAS - {"WINDOW"}:
            raise SqlError(f"calls something {word}: that is a word of SQL, choose another")
        if word == "FROM":
            self._from(level)
        elif word == "JOIN":
            level.clause, level.expects_table = "FROM", True
        elif word == "USING" and not after.is_symbol("("):
            raise SqlError("uses USING otherwise than for a join")
        elif (word == "LATERAL" and after.word == "VIEW") or (
            word == "WINDOW" and after.name and self._token(2).word == "AS" and self._token(3).is_symbol("(")
        ):
            level.clause = "LIST"
        elif word in CLAUSES:
            self._clause(word, level, after)
        elif after.is_symbol("("):
            check_function(self.tokens, self.place)

    def _from(self, level: Level) -> None:
        if level.clause == "SELECT" and not self._is_distinct_from():
            level.clause, level.expects_table = "FROM", True
        else:
            check_from(self.tokens, self.place, level.function)

    def _is_distinct_from(self) -> bool:
        words = [token.word for token in self.tokens[max(self.place - 3, 0) : self.place]]
        return words[-2:] == ["IS", "DISTINCT"] or words[-3:] == ["IS", "NOT", "DISTINCT"]

    def _clause(self, word: str, level: Level, after: Token) -> None:
        if word in ("LEFT", "RIGHT") or (word in WITH_BY and after.word != "BY"):
            return
        if word == "EXCEPT" and self._before().is_symbol("*"):
            return  # SELECT * EXCEPT (a, b)
        if word == "OFFSET" and level.clause == "SELECT":
            return  # a column of that name; the clause follows a table
        if after is END or after.is_symbol(",") or after.is_symbol(")"):
            raise SqlError(f"has nothing behind {word}")
        if word == "SELECT" and level.clause not in ("LIST", *SET_OPERATORS):
            raise SqlError("has a SELECT in the wrong place")
        level.clause = "LIST" if word in WITH_BY or word == "WITH" else word

    # Helpers

    def _token(self, distance: int) -> Token:
        place = self.place + distance
        return self.tokens[place] if 0 <= place < len(self.tokens) else END

    def _before(self) -> Token:
        return self._token(-1)

    def _after(self) -> Token:
        return self._token(1)

    def _chain(self) -> str:
        end = self.place
        while end + 2 < len(self.tokens) and self.tokens[end + 1].is_symbol(".") and self.tokens[end + 2].name:
            end += 2
        return "".join(token.text for token in self.tokens[self.place : end + 1])


def _own_names(tokens: list[Token]) -> set[str]:
    """The names that WITH defines: `name AS (SELECT`, `name (columns) AS (SELECT`."""
    names: set[str] = set()
    for place in range(1, len(tokens) - 2):
        if tokens[place].word != "AS" or not tokens[place + 1].is_symbol("("):
            continue
        if tokens[place + 2].word not in ("SELECT", "WITH") and not tokens[place + 2].is_symbol("("):
            continue
        before = place - 1
        if tokens[before].is_symbol(")"):
            while before > 0 and not tokens[before].is_symbol("("):
                before -= 1
            before -= 1
        names.add(tokens[before].name)
    return names - {""}
