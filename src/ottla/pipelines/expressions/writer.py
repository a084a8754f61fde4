"""Writes a tree as SQL for Spark: every name in backticks, every string escaped, only forms that are listed here.

`check_faithful` compares the tokens of this text with those of the user's text. So a form that sqlglot reads in another
way, or leaves out, is refused; and for Spark's parser the text has one reading, because no name can be a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ottla.pipelines.expressions import grammar as g
from ottla.pipelines.expressions.lexer import NUMBER, is_word, tokenize, word_of
from ottla.pipelines.expressions.problems import SqlError

OR, AND, NOT, PREDICATE = range(1, 5)
UNARY, POSTFIX, ATOM = range(12, 15)
SIGNS: Final = {kind: (level, text) for text, (level, kind) in reversed(g.OPERATORS.items())}
PLAIN: Final = re.compile(r"\w+")
SAME: Final = {"==": "=", "!=": "<>", "!": "NOT", "MINUS": "EXCEPT", "REGEXP": "RLIKE"}
LEVELS: Final[dict[type[exp.Expr], int]] = {
    exp.Or: OR, exp.And: AND, exp.Not: NOT, exp.Neg: UNARY, exp.BitwiseNot: UNARY, g.Positive: UNARY,
    **dict.fromkeys((exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike), PREDICATE),
    **dict.fromkeys((exp.Bracket, exp.Dot, g.ColonCast, exp.Collate), POSTFIX),
    **{kind: level for kind, (level, _) in SIGNS.items()},
}  # fmt: skip
WORDS_OF: Final[dict[type[exp.Expr], str]] = {
    exp.Or: "OR", exp.And: "AND", exp.Not: "NOT", exp.Neg: "-", g.Positive: "+", exp.BitwiseNot: "~", exp.Is: "IS",
    exp.Like: "LIKE", exp.ILike: "ILIKE", exp.RegexpLike: "RLIKE", exp.Order: "ORDER BY", exp.Sort: "SORT BY",
    exp.Cluster: "CLUSTER BY", exp.Distribute: "DISTRIBUTE BY",
}  # fmt: skip
REFUSED_NAMES: Final = {
    "TABLE", "VALUES", "IDENTIFIER", "INSERT", "MERGE", "UPDATE", "DELETE", "OVERWRITE", "DIRECTORY", "RECURSIVE",
    "TABLESAMPLE", "MAP", "REDUCE", "TRANSFORM",
}  # fmt: skip


class Piece(NamedTuple):
    text: str
    start: int | None = None  # position in the user's text, if it is known
    is_table: bool = False


def write(tree: exp.Expr, tables: Mapping[int, str] | None = None, *, as_written: bool = False) -> list[Piece]:
    """The pieces of the text; `tables`: names for these nodes, by their id; `as_written`: with the user's backticks
    only, for text that is read again here. Raises SqlError."""
    writer = _Writer(tables or {}, as_written)
    writer.put(tree)
    return writer.pieces


def to_text(pieces: Iterable[Piece]) -> str:
    return " ".join(piece.text for piece in pieces)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def string(text: str) -> str:
    """A string literal that Spark reads as this text. Spark replaces ${…} in the text of a query, also in strings."""
    escaped = "".join(
        f"\\u{ord(each):04x}"
        if (not each.isprintable() and ord(each) < 0x10000)
        else {"\\": "\\\\", "'": "\\'"}.get(each, each)
        for each in text
    )
    return "'" + escaped.replace("$", "\\u0024") + "'"


def check_faithful(tokens: Sequence[Token], pieces: Sequence[Piece]) -> None:
    """Raises SqlError where the tree says something else than the user."""
    written = [*_normal(tokenize(to_text(pieces)))]
    given = [*_normal(tokens)]
    for (one, token), (other, _) in zip(given, [*written, ("", None)], strict=False):
        if one != other:
            at = token.start if token else None
            raise SqlError(f"has a form that is not known here, at {token.text!r}" if token else "ends too early", at)
    if len(written) > len(given):
        raise SqlError("has a form that is not known here, at its end")


def _normal(tokens: Iterable[Token]) -> Iterator[tuple[str, Token]]:
    """The tokens in one spelling, without words that change nothing."""
    before = word = ""  # of a name in backticks no word
    given = list(tokens)
    for token, after in zip(given, [*given[1:], None], strict=True):
        kind, text = token.token_type, token.text.upper()
        if kind in (TokenType.STRING, TokenType.RAW_STRING):
            before = f"'{token.text}"
        elif kind == TokenType.HEX_STRING:
            before = f"X'{text}"
        elif kind == TokenType.IDENTIFIER and (not PLAIN.fullmatch(token.text) or NUMBER.fullmatch(token.text)):
            before = f"`{token.text}"  # no word without backticks could be this name
        elif not _is_idle(token, word, after):
            before = SAME.get(text, text)
        else:
            continue
        word = "" if kind == TokenType.IDENTIFIER else before
        yield before, token


def _is_idle(token: Token, before: str, after: Token | None) -> bool:
    word = word_of(token)
    if word == "AS":
        is_name = after is not None and (after.token_type == TokenType.IDENTIFIER or is_word(after))
        return is_name and before not in {*g.NO_NAME, ",", "("}
    return (word == "DISTINCT" and before in ("UNION", "EXCEPT", "INTERSECT")) or (word == "ALL" and before == "SELECT")


class _Writer:
    def __init__(self, tables: Mapping[int, str], as_written: bool) -> None:
        self.tables = tables
        self.as_written = as_written
        self.pieces: list[Piece] = []

    def __repr__(self) -> str:
        return f"_Writer({to_text(self.pieces)!r})"

    # Basics

    def text(self, *words: str) -> None:
        self.pieces += [Piece(word) for word in words]

    def put(self, node: Any, level: int = 0) -> None:
        """In brackets if it binds less than `level`."""
        is_number = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
        own = ATOM if is_number else LEVELS.get(type(node), ATOM)
        write = WRITERS.get(type(node))
        if write is None:
            raise SqlError(f"has a form that is not known here ({type(node).__name__})", _start(node))
        if own < level:
            self.text("(")
        write(self, node)
        if own < level:
            self.text(")")

    def list(self, nodes: Iterable[Any], level: int = 0) -> None:
        for place, node in enumerate(nodes):
            if place:
                self.text(",")
            self.put(node, level)

    def only(self, node: exp.Expr, *known: str) -> None:
        """Everything else that the parser has found is not understood here."""
        for key, value in node.args.items():
            if key not in known and value not in (None, False, []):
                raise SqlError(f"has a form that is not known here ({type(node).__name__}, {key})", _start(node))

    # Values

    def identifier(self, node: exp.Identifier) -> None:
        self.only(node, "this", "quoted")
        word = "" if node.args.get("quoted") else node.name.upper()
        if word in REFUSED_NAMES - {"MAP", "REDUCE", "TRANSFORM"} and not isinstance(node.parent, exp.Dot):
            parent = node.parent
            if not (isinstance(parent, exp.Column) and parent.args.get("table") and node.arg_key == "this"):
                raise SqlError(
                    f"uses {word}, which is not allowed (a column of that name needs `backticks`)", _start(node)
                )
        is_bare = self.as_written and not node.args.get("quoted")
        self.pieces.append(Piece(node.name if is_bare else quoted(node.name), _start(node)))

    def new_name(self, node: exp.Expr) -> None:
        if not node.args.get("quoted") and node.name.upper() in g.NO_ALIAS | REFUSED_NAMES:
            raise SqlError(f"calls something {node.name.upper()}: that is a word of SQL, choose another", _start(node))
        self.put(node)

    def column(self, node: exp.Column) -> None:
        self.only(node, "this", "table", "db", "catalog")
        parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
        for place, part in enumerate(parts):
            if place:
                self.text(".")
            self.put(part)

    def star(self, node: exp.Star) -> None:
        self.only(node, "except_")
        self.text("*")
        if node.args.get("except_"):
            self.text("EXCEPT", "(")
            self.list(node.args["except_"])
            self.text(")")

    def literal(self, node: exp.Literal) -> None:
        self.only(node, "this", "is_string")
        self.pieces.append(Piece(string(node.this) if node.is_string else node.this, _start(node)))

    def var(self, node: exp.Var) -> None:
        self.text(node.name)

    def typed(self, node: g.TypedLiteral) -> None:
        self.put(node.this)
        self.put(node.expression)

    def words(self, node: g.Words) -> None:
        for entry in node.expressions:
            level = g.COMPARISON if LEVELS.get(type(entry), ATOM) < ATOM else 0
            self.put(entry, level)

    # Operators

    def binary(self, node: exp.Binary) -> None:
        self.only(node, "this", "expression")
        level = LEVELS[type(node)]
        spine: list[exp.Binary] = [node]  # long sums are deep trees
        while LEVELS.get(type(spine[-1].this)) == level and type(spine[-1].this) in WRITERS:
            spine.append(spine[-1].this)
            self.only(spine[-1], "this", "expression")
        self.put(spine[-1].this, level)
        for each in reversed(spine):
            sign = WORDS_OF.get(type(each)) or SIGNS[type(each)][1]
            self.text(sign)
            self.put(each.expression, level + 1)

    def unary(self, node: exp.Unary) -> None:
        self.text(WORDS_OF[type(node)])
        self.put(node.this, LEVELS[type(node)])

    def predicate(self, node: exp.Expr) -> None:
        self.only(node, "this", "expression", "negate")
        self.put(node.this, g.COMPARISON)
        word = WORDS_OF[type(node)]
        negate = ["NOT"] if node.args.get("negate") else []
        self.text(*([word, *negate] if word == "IS" else [*negate, word]))
        self.put(node.expression, g.COMPARISON)

    def in_(self, node: exp.In) -> None:
        self.only(node, "this", "expressions", "query", "negate")
        self.put(node.this, g.COMPARISON)
        self.text(*(["NOT", "IN", "("] if node.args.get("negate") else ["IN", "("]))
        if node.args.get("query"):
            self.put(node.args["query"])
        else:
            self.list(node.expressions)
        self.text(")")

    def between(self, node: exp.Between) -> None:
        self.only(node, "this", "low", "high", "negate")
        self.put(node.this, g.COMPARISON)
        self.text(*(["NOT", "BETWEEN"] if node.args.get("negate") else ["BETWEEN"]))
        self.put(node.args["low"], g.COMPARISON)
        self.text("AND")
        self.put(node.args["high"], g.COMPARISON)

    def bracketed(self, node: exp.Expr) -> None:
        self.only(node, "this", "expressions")
        self.text(*(["EXISTS"] if isinstance(node, exp.Exists) else []), "(")
        self.list(node.expressions if isinstance(node, exp.Tuple) else [node.this])
        self.text(")")

    def case(self, node: exp.Case) -> None:
        self.only(node, "this", "ifs", "default")
        self.text("CASE")
        if node.this:
            self.put(node.this)
        for branch in node.args["ifs"]:
            self.text("WHEN")
            self.put(branch.this)
            self.text("THEN")
            self.put(branch.args["true"])
        if node.args.get("default"):
            self.text("ELSE")
            self.put(node.args["default"])
        self.text("END")

    def cast(self, node: exp.Cast) -> None:
        self.only(node, "this", "to", "safe")
        kind = str(node.args["to"].args["kind"])
        if isinstance(node, g.ColonCast):
            self.put(node.this, POSTFIX)
            self.text("::", kind)
            return
        self.pieces.append(Piece("TRY_CAST" if isinstance(node, exp.TryCast) else "CAST", _start(node)))
        self.text("(")
        self.put(node.this)
        self.text("AS", kind, ")")

    def bracket(self, node: exp.Bracket) -> None:
        self.only(node, "this", "expressions")
        self.put(node.this, POSTFIX)
        self.text("[")
        self.list(node.expressions, g.COMPARISON)
        self.text("]")

    def dot(self, node: exp.Dot) -> None:
        self.put(node.this, POSTFIX)
        self.text(".")
        self.put(node.expression)

    def collate(self, node: exp.Collate) -> None:
        self.put(node.this, POSTFIX)
        self.text("COLLATE")
        self.put(node.expression)

    # Calls

    def call(self, node: exp.Anonymous) -> None:
        self.only(node, "this", "expressions")
        name = node.this
        self.pieces.append(Piece(self.call_name(name), _start(name)))
        self.text("(")
        self.list(node.expressions)
        self.text(")")

    def call_name(self, name: exp.Identifier) -> str:
        """A name that has a grammar of its own stays a word."""
        is_bare = (self.as_written or name.name.upper() in KEYWORD_CALLS) and not name.args.get("quoted")
        return name.name if is_bare else quoted(name.name)

    def distinct(self, node: exp.Distinct) -> None:
        self.only(node, "expressions")
        self.text("DISTINCT")
        self.list(node.expressions)

    def named(self, node: exp.Kwarg) -> None:
        self.put(node.this)
        self.text("=>")
        self.put(node.expression)

    def nulls(self, node: exp.Expr) -> None:
        self.put(node.this)
        self.text("IGNORE" if isinstance(node, exp.IgnoreNulls) else "RESPECT", "NULLS")

    def lambda_(self, node: exp.Lambda) -> None:
        self.only(node, "this", "expressions")
        names = node.expressions
        self.text(*["("] * (len(names) > 1))
        self.list(names)
        self.text(*[")"] * (len(names) > 1), "->")
        self.put(node.this)

    def filter(self, node: exp.Filter) -> None:
        self.put(node.this)
        self.text("FILTER", "(", "WHERE")
        self.put(node.expression.this)
        self.text(")")

    def within(self, node: exp.WithinGroup) -> None:
        self.put(node.this)
        self.text("WITHIN", "GROUP", "(")
        self.put(node.expression)
        self.text(")")

    def window(self, node: exp.Window) -> None:
        self.only(node, "this", "partition_by", "order", "spec", "alias", "over")
        if node.args.get("over"):
            self.put(node.this)
            self.text("OVER")
        else:
            self.new_name(node.this)
            self.text("AS")
        detail = [node.args.get(key) for key in ("partition_by", "order", "spec")]
        if node.args.get("alias") and not any(detail) and node.args.get("over"):
            self.put(node.args["alias"])
            return
        self.text("(")
        if node.args.get("alias"):
            self.put(node.args["alias"])
        if node.args.get("partition_by"):
            self.text("PARTITION BY")
            self.list(node.args["partition_by"])
        if node.args.get("order"):
            self.put(node.args["order"])
        if node.args.get("spec"):
            self.put(node.args["spec"])
        self.text(")")

    def frame(self, node: exp.WindowSpec) -> None:
        self.only(node, "kind", "start", "start_side", "end", "end_side")
        self.text(str(node.args["kind"]).upper())
        ends = [key for key in ("start", "end") if node.args.get(key)]
        for place, key in enumerate(ends):
            self.text(*([("BETWEEN", "AND")[place]] if len(ends) == 2 else []))
            value = node.args[key]
            self.text(*value.split()) if isinstance(value, str) else self.put(value, g.COMPARISON)
            self.text(*[str(node.args[f"{key}_side"]).upper()] * bool(node.args.get(f"{key}_side")))

    # Queries

    def select(self, node: exp.Select) -> None:
        self.only(
            node, "with_", "distinct", "expressions", "from_", "joins", "laterals", "where", "group", "having",
            "windows", *MODIFIERS,
        )  # fmt: skip
        self._with(node)
        self.text("SELECT")
        if node.args.get("distinct"):
            self.only(node.args["distinct"])
            self.text("DISTINCT")
        self.list(node.expressions)
        if node.args.get("from_"):
            self.text("FROM")
            self.put(node.args["from_"].this)
        self._joins(node)
        for key, words in (("where", "WHERE"), ("group", ""), ("having", "HAVING")):
            clause = node.args.get(key)
            if clause is not None:
                self.text(*[words] * bool(words))
                self.put(clause if key == "group" else clause.this)
        if node.args.get("windows"):
            self.text("WINDOW")
            self.list(node.args["windows"])
        self._modifiers(node)

    def _with(self, node: exp.Expr) -> None:
        clause = node.args.get("with_")
        if clause is None:
            return
        self.only(clause, "expressions")
        self.text("WITH")
        for place, each in enumerate(clause.expressions):
            self.only(each, "this", "alias")
            self.text(*[","] * bool(place))
            self._alias(each.args["alias"], is_with=True)
            self.text("AS", "(")
            self.put(each.this)
            self.text(")")

    def _joins(self, node: exp.Expr) -> None:
        for join in node.args.get("joins") or []:
            self.put(join)
        for lateral in node.args.get("laterals") or []:
            self.put(lateral)

    def _modifiers(self, node: exp.Expr) -> None:
        for key, words in MODIFIERS.items():
            clause = node.args.get(key)
            if clause is None:
                continue
            if words:
                self.only(clause, "expression")
                self.text(words)
                self.put(clause.expression, g.COMPARISON)
            else:
                self.put(clause)

    def ordering(self, node: exp.Expr) -> None:
        self.only(node, "expressions")
        self.text(WORDS_OF[type(node)])
        self.list(node.expressions)

    def ordered(self, node: exp.Ordered) -> None:
        self.only(node, "this", "desc", "nulls_first")
        self.put(node.this)
        if node.args.get("desc") is not None:
            self.text("DESC" if node.args["desc"] else "ASC")
        if node.args.get("nulls_first") is not None:
            self.text("NULLS", "FIRST" if node.args["nulls_first"] else "LAST")

    def group(self, node: exp.Group) -> None:
        self.only(node, "expressions", "all", "suffix")
        self.text("GROUP BY", *["ALL"] * bool(node.args.get("all")))
        self.list(node.expressions)
        if node.args.get("suffix"):
            self.put(node.args["suffix"])

    def set_operation(self, node: exp.SetOperation) -> None:
        self.only(node, "this", "expression", "distinct", "with_", "by_name", *MODIFIERS)
        self._with(node)
        self.put(node.this)
        self.text(type(node).__name__.upper(), *["ALL"] * (node.args.get("distinct") is False))
        self.text(*["BY", "NAME"] * bool(node.args.get("by_name")))
        self.put(node.expression)
        self._modifiers(node)

    def subquery(self, node: exp.Subquery) -> None:
        self.only(node, "this", "alias", "joins", "with_", *MODIFIERS)
        self._with(node)
        self.text("(")
        self.put(node.this)
        self.text(")")
        if node.args.get("alias"):
            self._alias(node.args["alias"])
        self._joins(node)
        self._modifiers(node)

    def table(self, node: exp.Table) -> None:
        self.only(node, "this", "alias", "joins")
        alias = node.args.get("alias")
        if id(node) in self.tables:
            self.pieces.append(Piece(self.tables[id(node)], _start(node.this), is_table=True))
            if alias is None:
                self.text("AS", quoted(node.name.lower()))
        else:
            self.put(node.this)
        if alias is not None:
            self._alias(alias)
        self._joins(node)

    def _alias(self, node: exp.TableAlias, *, is_with: bool = False) -> None:
        self.only(node, "this", "columns")
        if not is_with:
            self.text("AS")
        if node.this:
            self.new_name(node.this)
        if node.args.get("columns"):
            self.text("(")
            self.list(node.args["columns"])
            self.text(")")

    def join(self, node: exp.Join) -> None:
        self.only(node, "this", "method", "side", "kind", "on", "using", "comma")
        words = [str(node.args[key]) for key in ("method", "side", "kind") if node.args.get(key)]
        self.text(*([","] if node.args.get("comma") else [*words, "JOIN"]))
        self.put(node.this)
        if node.args.get("on"):
            self.text("ON")
            self.put(node.args["on"])
        elif node.args.get("using"):
            self.text("USING", "(")
            self.list(node.args["using"])
            self.text(")")

    def lateral(self, node: exp.Lateral) -> None:
        self.only(node, "this", "view", "outer", "alias")
        if not isinstance(node.this, exp.Anonymous | exp.Subquery):
            raise SqlError("has LATERAL without a function or query behind it", _start(node.this))
        self.text("LATERAL", *["VIEW"] * bool(node.args.get("view")), *["OUTER"] * bool(node.args.get("outer")))
        self.put(node.this)
        alias = node.args.get("alias")
        if alias is None:
            return
        if not node.args.get("view"):
            self._alias(alias)
            return
        if alias.this:
            self.new_name(alias.this)
        if alias.args.get("columns"):
            self.text("AS")
            self.list(alias.args["columns"])

    def alias(self, node: exp.Alias) -> None:
        self.only(node, "this", "alias")
        self.put(node.this)
        self.text("AS")
        self.new_name(node.args["alias"])

    def aliases(self, node: exp.Aliases) -> None:
        self.put(node.this)
        self.text("AS", "(")
        self.list(node.expressions)
        self.text(")")


MODIFIERS: Final = {
    "order": "", "cluster": "", "distribute": "", "sort": "", "limit": "LIMIT", "offset": "OFFSET",
}  # fmt: skip
WRITERS: Final[dict[type, Callable[[_Writer, Any], None]]] = {
    exp.Identifier: _Writer.identifier, exp.Column: _Writer.column, exp.Star: _Writer.star, exp.Var: _Writer.var,
    exp.Literal: _Writer.literal, exp.Null: lambda self, _: self.text("NULL"),
    exp.Boolean: lambda self, node: self.text("TRUE" if node.this else "FALSE"),
    exp.HexString: lambda self, node: self.text(f"X'{node.this}'"),
    g.TypedLiteral: _Writer.typed, g.Words: _Writer.words, exp.Or: _Writer.binary, exp.And: _Writer.binary,
    **dict.fromkeys(SIGNS, _Writer.binary),
    **dict.fromkeys((exp.Neg, exp.BitwiseNot, exp.Not, g.Positive), _Writer.unary),
    **dict.fromkeys((exp.Is, exp.Like, exp.ILike, exp.RegexpLike), _Writer.predicate),
    exp.In: _Writer.in_, exp.Between: _Writer.between, exp.Case: _Writer.case, exp.Bracket: _Writer.bracket,
    **dict.fromkeys((exp.Paren, exp.Tuple, exp.Exists), _Writer.bracketed),
    **dict.fromkeys((exp.Cast, exp.TryCast, g.ColonCast), _Writer.cast), exp.Dot: _Writer.dot,
    exp.Collate: _Writer.collate, exp.Anonymous: _Writer.call, exp.Distinct: _Writer.distinct,
    exp.Kwarg: _Writer.named, exp.IgnoreNulls: _Writer.nulls, exp.RespectNulls: _Writer.nulls,
    exp.Lambda: _Writer.lambda_, exp.Filter: _Writer.filter, exp.WithinGroup: _Writer.within,
    exp.Window: _Writer.window, exp.WindowSpec: _Writer.frame, exp.Select: _Writer.select,
    **dict.fromkeys((exp.Order, exp.Sort, exp.Cluster, exp.Distribute), _Writer.ordering),
    exp.Ordered: _Writer.ordered, exp.Group: _Writer.group, exp.Subquery: _Writer.subquery, exp.Table: _Writer.table,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _Writer.set_operation), exp.Join: _Writer.join,
    exp.Lateral: _Writer.lateral, exp.Alias: _Writer.alias, exp.Aliases: _Writer.aliases,
}  # fmt: skip


def _start(node: Any) -> int | None:
    found = node.meta.get("start") if isinstance(node, exp.Expr) else None
    return int(found) if found is not None else None


KEYWORD_CALLS: Final = {
    *g.UNIT_FIRST, *g.BETWEEN_ARGUMENTS, "STRUCT", "FIRST", "LAST", "ANY_VALUE", "LEFT", "RIGHT",
}  # fmt: skip
