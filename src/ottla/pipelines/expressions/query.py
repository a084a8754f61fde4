"""One SELECT over named tables: every table in the tree is one that is allowed, and has the name that Spark gets.

So no other name can reach Spark's catalog, or a file (parquet.`/etc/x`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ottla.pipelines.expressions.functions import kind_of
from ottla.pipelines.expressions.grammar import NO_ALIAS, Parser, Words
from ottla.pipelines.expressions.lexer import SparkSql, tokenize
from ottla.pipelines.expressions.problems import SqlError, UnknownTableError
from ottla.pipelines.expressions.tree import check, check_depth, deep_recursion
from ottla.pipelines.expressions.writer import Piece, check_faithful, to_text, write

STREAM = "stream"


@dataclass(frozen=True)
class Query:
    """A checked SELECT. `tables` are the places of names to replace."""

    tree: exp.Expr
    tables: dict[int, str] = field(default_factory=dict)  # id of the node -> name in lower case

    def text(self, names: Mapping[str, str]) -> str:
        """For Spark, with these names for the tables, and every brace doubled: Spark's `sql` inserts tables at
        {name}."""
        pieces = self._pieces(names)
        return " ".join(piece.text if piece.is_table else _doubled(piece.text) for piece in pieces)

    def renamed(self, names: Mapping[str, str]) -> str:
        """With these names for the tables, as the query of another step."""
        return to_text(self._pieces(names, as_written=True))

    def words(self) -> set[str]:
        """All names in it, in lower case."""
        return {each.name.lower() for each in self.tree.find_all(exp.Identifier)}

    def origin(self, spark_text: str, index: int) -> int | None:
        """The position in the user's text for an index in Spark's text, for error messages.

        Both texts have the same tokens in the same order; only names of tables differ.
        """
        pieces = self._pieces({name: f"`{name}`" for name in self.tables.values()})
        try:
            mine, sparks = tokenize(to_text(pieces)), tokenize(spark_text)
        except SqlError:
            return None
        place = next((at for at, token in enumerate(sparks) if index <= token.end), len(mine))
        return _start_at(pieces, mine[place].start) if place < len(mine) else None

    def _pieces(self, names: Mapping[str, str], *, as_written: bool = False) -> list[Piece]:
        with deep_recursion():
            return write(self.tree, {node: names[name] for node, name in self.tables.items()}, as_written=as_written)


def parse_query(text: str) -> exp.Expr:
    """The tree of a SELECT whose tables and functions are not checked. Raises SqlError."""
    return _parsed(text, tokenize(text))


def read_query(text: str, tables: Sequence[str] = ()) -> Query:
    """`tables` are the names that it may read besides `stream`. Raises SqlError with the reason why the text is not
    allowed."""
    tokens = tokenize(text)
    found = _checked(_parsed(text, tokens), tables)
    with deep_recursion():
        check_faithful(tokens, write(found.tree))
    return found


def _parsed(text: str, tokens: list[Token]) -> exp.Expr:
    if not tokens:
        raise SqlError("is not a SELECT")
    with deep_recursion():
        tree = Parser(dialect=SparkSql).query_of(tokens, text)
        check_depth(tree)
    return tree


def _checked(tree: exp.Expr, tables: Sequence[str]) -> Query:
    known = {STREAM, *(table.lower() for table in tables)}
    check(tree)
    for each in tree.find_all(exp.CTE):
        if each.alias.lower() in known:
            raise SqlError(f"gives the name {each.alias.lower()!r} to something else", _start(each.args["alias"].this))
    found = Query(tree)
    for node in tree.find_all(exp.Table, exp.Lateral, bfs=False):
        _check_source(node, known, found)
    return found


def check_query(text: str, tables: Sequence[str] = ()) -> str | None:
    """Why this query is not allowed, or None."""
    try:
        read_query(text, tables)
    except SqlError as problem:
        return str(problem)
    return None


def _check_source(node: exp.Expr, known: Collection[str], found: Query) -> None:
    source = node.this
    if isinstance(source, exp.Anonymous):
        if kind_of(source.name) != "generator":
            raise SqlError(f"reads {source.name.lower()}(), which is not allowed", _start(source))
    elif isinstance(node, exp.Table):
        name = source.name.lower()
        is_plain = isinstance(source, exp.Identifier) and not node.args.get("db")
        if is_plain and name in _common_tables(node):
            return
        if not is_plain or name not in known:
            raise UnknownTableError(_path(node), known, _start(node.parts[0]))
        if not source.args.get("quoted") and name.upper() in NO_ALIAS:
            raise SqlError(f"reads {name}, which is a word of SQL: write it in `backticks`", _start(source))
        found.tables[id(node)] = name


def _common_tables(node: exp.Expr) -> Iterator[str]:
    """The names of WITH that can be seen from here: those of queries around it, and of a WITH only the ones before."""
    inner: exp.Expr = node
    while inner.parent is not None:
        outer = inner.parent
        clause = outer if isinstance(outer, exp.With) else outer.args.get("with_")
        clause = None if clause is inner else clause
        for each in clause.expressions if isinstance(clause, exp.With) else ():
            if each is inner:
                break
            yield each.alias.lower()
        inner = outer


def _path(node: exp.Expr) -> str:
    parts = node.parts if isinstance(node, exp.Table) else []
    return ".".join(f"`{part.name}`" if part.args.get("quoted") else part.name for part in parts)


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _start(node: exp.Expr) -> int | None:
    return node.meta.get("start")


def _start_at(pieces: Sequence[Piece], position: int) -> int | None:
    """The place in the user's text of the piece at this position, or of the next one that has a place."""
    end = 0
    for piece in pieces:
        end += len(piece.text) + 1
        if end > position and piece.start is not None:
            return piece.start
    return None


# What is known of a result


class Where(NamedTuple):
    """The WHERE of a query over the stream alone, as Spark's text; `alias` is the query's alias of the stream."""

    condition: str
    alias: str


def where_of(tree: exp.Expr) -> Where | None:
    """So that removed rows can be counted as filtered. None if there is no WHERE, or it does not concern the stream's
    rows alone: with several tables a row of the stream has no single result."""
    source = tree.args.get("from_")
    condition = tree.args.get("where")
    is_plain = isinstance(tree, exp.Select) and not any(tree.args.get(key) for key in ("with_", "joins", "laterals"))
    if not is_plain or condition is None or source is None or len([*tree.find_all(exp.Select)]) > 1:
        return None
    table = source.this
    if not isinstance(table, exp.Table) or table.name.lower() != STREAM or table.args.get("joins"):
        return None
    return Where(to_text(write(condition.this)), table.alias.lower() or STREAM)


def grouping_columns(text: str) -> set[str] | None:
    """The columns of its result by which a SELECT groups: there is one row for each of their values.

    Only what is certain: the outermost SELECT has a GROUP BY, and each of its expressions is in the select list. None
    for all others (set operators, ROLLUP, column numbers, table-generating functions), which is always safe.
    """
    try:
        tree = parse_query(text)
    except SqlError:
        return None
    group = tree.args.get("group")
    if not isinstance(tree, exp.Select) or group is None or group.args.get("all") or group.args.get("suffix"):
        return None
    calls = (call for item in tree.expressions for call in item.find_all(exp.Anonymous))
    if any(kind_of(call.name) == "generator" for call in calls):
        return None
    names = {_signature(item.unalias()): item.output_name for item in tree.expressions if item.output_name}
    groups = [None if isinstance(each, Words | exp.Literal) else _signature(each) for each in group.expressions]
    return None if any(each not in names for each in groups) else {names[each] for each in groups if each}


def _signature(node: exp.Expr) -> str:
    return to_text(write(node)).lower()
