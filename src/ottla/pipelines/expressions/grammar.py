"""Spark's grammar for expressions and queries, as a subclass of sqlglot's parser.

sqlglot translates between dialects: it renames functions, and its operators bind in another order than Spark's. So
expressions follow the rules of Spark's own grammar here, and calls keep their names. Queries are read by sqlglot;
what it leaves out or reorders is found in writer.py, which compares the text of the tree with what was written.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NoReturn, cast

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ottla.pipelines.expressions.lexer import DELIMITED, is_word, word_of
from ottla.pipelines.expressions.problems import SqlError

# Behind a join without ON, sqlglot looks for its ON later, and then reads the rest again: 2^n for n such joins.
JOINS_TRIED_MAX: Final = 10_000
COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT = range(5, 12)


class UnsignedShift(exp.Expression, exp.Binary):
    """`a >>> b`."""


class Positive(exp.Unary):
    """`+a`."""


class ColonCast(exp.Cast):
    """`a::type`."""


class TypedLiteral(exp.Expression):
    """`DATE '2026-01-31'`: `this` is the word."""

    arg_types: ClassVar = {"this": True, "expression": True}


class Words(exp.Expression):
    """Words and expressions one behind the other: `INTERVAL 1 DAY`, `DAY FROM time`."""

    arg_types: ClassVar = {"expressions": True}


OPERATORS: Final[dict[str, tuple[int, type[exp.Expr]]]] = {
    "=": (COMPARISON, exp.EQ), "==": (COMPARISON, exp.EQ), "<>": (COMPARISON, exp.NEQ), "!=": (COMPARISON, exp.NEQ),
    "<=>": (COMPARISON, exp.NullSafeEQ), "<": (COMPARISON, exp.LT), "<=": (COMPARISON, exp.LTE),
    ">": (COMPARISON, exp.GT), ">=": (COMPARISON, exp.GTE), "|": (BIT_OR, exp.BitwiseOr),
    "^": (BIT_XOR, exp.BitwiseXor), "&": (BIT_AND, exp.BitwiseAnd), "<<": (SHIFT, exp.BitwiseLeftShift),
    ">>": (SHIFT, exp.BitwiseRightShift),
    ">>>": (SHIFT, UnsignedShift), "+": (SUM, exp.Add), "-": (SUM, exp.Sub), "||": (SUM, exp.DPipe),
    "*": (PRODUCT, exp.Mul), "/": (PRODUCT, exp.Div), "%": (PRODUCT, exp.Mod), "DIV": (PRODUCT, exp.IntDiv),
}  # fmt: skip
NO_NAME: Final = {  # words of the grammar that are not names without backticks
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY",
    "PARTITION BY", "GROUPING SETS", "UNION", "EXCEPT", "INTERSECT", "MINUS", "WITH", "AS", "JOIN", "ON", "USING",
    "AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "IS", "WHEN", "THEN", "ELSE", "LATERAL",
    "DISTINCT", "ALL",
}  # fmt: skip
NO_ALIAS: Final = NO_NAME | {
    "LIMIT", "OFFSET", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "OUTER", "SEMI", "ANTI", "NATURAL", "PIVOT",
    "UNPIVOT", "GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "SET", "INTO", "WINDOW", "FOR", "QUALIFY",
}  # fmt: skip
LIKES: Final = {"LIKE", "ILIKE", "RLIKE", "REGEXP"}
TYPED: Final = {"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}
UNITS: Final = {
    unit + plural
    for unit in (
        "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
        "MICROSECOND", "NANOSECOND",
    )
    for plural in ("", "S")
}  # fmt: skip
UNIT_FIRST: Final = {"TIMESTAMPADD", "DATEADD", "DATE_ADD", "TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF", "TIMEDIFF"}
BETWEEN_ARGUMENTS: Final = {  # calls whose arguments may be separated by words
    "EXTRACT": {"FROM"}, "TRIM": {"FROM"}, "SUBSTRING": {"FROM", "FOR"}, "SUBSTR": {"FROM", "FOR"},
    "OVERLAY": {"PLACING", "FROM", "FOR"}, "POSITION": {"IN"},
}  # fmt: skip
HEXADECIMAL: Final = set("0123456789abcdefABCDEF")
SIDES: Final = {"BOTH", "LEADING", "TRAILING"}
SIMPLE_TYPES: Final = {
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
    "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY", "VOID", "VARIANT",
}  # fmt: skip
SIZED_TYPES: Final = {"DECIMAL": 2, "DEC": 2, "NUMERIC": 2, "CHAR": 1, "CHARACTER": 1, "VARCHAR": 1, "TIME": 1}


class Parser(SparkParser):
    """Reads one expression or one query. Every method raises SqlError."""

    FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[Any, Any]] = {}
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    ADD_JOIN_ON_TRUE = False
    JOINS_HAVE_EQUAL_PRECEDENCE = False
    SUPPORTS_IMPLICIT_UNNEST = False
    joins_tried = 0

    def raise_error(self, message: str = "", token: Token | None = None) -> NoReturn:  # noqa: ARG002 (sqlglot's words)
        token = token or self._curr
        if self._index >= len(self._tokens):
            raise SqlError("ends too early", self._tokens[-1].start)
        raise SqlError(f"cannot be read at {token.text!r}", token.start)

    def expression_of(self, tokens: list[Token], text: str) -> exp.Expr:
        return self._one(self._parse(lambda self: self._parse_disjunction(), tokens, text))

    def query_of(self, tokens: list[Token], text: str) -> exp.Expr:
        return self._one(self._parse(lambda self: self._parse_statement(), tokens, text))

    def _one(self, found: list[exp.Expr | None]) -> exp.Expr:
        if len(found) != 1 or found[0] is None:
            raise SqlError(f"cannot be read at {self._tokens[0].text!r}", self._tokens[0].start)
        return found[0]

    # Operators, from the weakest

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr:  # noqa: ARG002 (sqlglot's signature)
        """NOT, EXISTS and predicates: between AND and the comparisons."""
        if self._match(TokenType.NOT):
            return exp.Not(this=self._parse_equality())
        if self._is_at("EXISTS", "(") and word_of(self._at(2)) in ("SELECT", "WITH"):
            self._advance(2)
            found = exp.Exists(this=self._parse_statement())
            self._match_r_paren()
            return found
        return self._predicate(self._parse_bitwise())

    def _predicate(self, this: exp.Expr) -> exp.Expr:
        negate = True if self._match(TokenType.NOT) else None
        word = word_of(self._curr)
        found: exp.Expr
        if word == "IS" and not negate:
            self._advance()
            found = self._is(this)
        elif word == "IN" and self._at(1).token_type == TokenType.L_PAREN:
            self._advance(2)
            if word_of(self._curr) in ("SELECT", "WITH"):
                found = exp.In(this=this, query=self._parse_statement())
            else:
                found = exp.In(this=this, expressions=self._parse_csv(self._parse_disjunction))
            self._match_r_paren()
        elif word == "BETWEEN":
            self._advance()
            low = self._parse_bitwise()
            self._expect("AND")
            found = exp.Between(this=this, low=low, high=self._parse_bitwise())
        elif word in LIKES:
            self._advance()
            found = self._like(word, this)
        elif negate:
            self.raise_error()
        else:
            return this
        if negate:
            found.set("negate", True)
        return found

    def _is(self, this: exp.Expr) -> exp.Expr:
        negate = True if self._match(TokenType.NOT) else None
        word = word_of(self._curr)
        wanted: exp.Expr
        if word == "DISTINCT":
            self._advance()
            self._expect("FROM")
            wanted = Words(expressions=[exp.Var(this="DISTINCT"), exp.Var(this="FROM"), self._parse_bitwise()])
        elif word in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            self._advance()
            wanted = exp.Var(this=word)
        else:
            self.raise_error()
        found = exp.Is(this=this, expression=wanted)
        if negate:
            found.set("negate", True)
        return found

    def _like(self, word: str, this: exp.Expr) -> exp.Expr:
        kind = {"LIKE": exp.Like, "ILIKE": exp.ILike}.get(word, exp.RegexpLike)
        quantifier = word_of(self._curr)
        if kind is not exp.RegexpLike and quantifier in ("ANY", "SOME", "ALL") and self._is_at(quantifier, "("):
            self._advance()
            several = self._parenthesised()
            return kind(this=this, expression=Words(expressions=[exp.Var(this=quantifier), several]))
        pattern = self._parse_bitwise()
        if kind is not exp.RegexpLike and self._skip("ESCAPE"):
            if self._curr.token_type != TokenType.STRING:
                self.raise_error()
            self._advance()
            escape = exp.Literal.string(self._prev.text)
            pattern = Words(expressions=[pattern, exp.Var(this="ESCAPE"), escape])
        return kind(this=this, expression=pattern)

    def _parse_bitwise(self, level: int = COMPARISON) -> exp.Expr:
        """Comparisons and everything that binds more tightly."""
        this = self._parse_unary()
        while True:
            text = self._operator()
            if text not in OPERATORS or OPERATORS[text][0] < level:
                return this
            self._advance(len(text) if text in ("<<", ">>", ">>>") else 1)
            found, kind = OPERATORS[text]
            this = kind(this=this, expression=self._parse_bitwise(found + 1))

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr:  # noqa: ARG002 (sqlglot's signature)
        return self._parse_bitwise(SUM)

    def _operator(self) -> str:
        token = self._curr
        if token.token_type in DELIMITED:
            return ""
        text: str = token.text.upper()
        if text not in ("<", ">"):
            return text
        count = 1
        while count < 3 and self._at(count).text == text and self._at(count).start == token.start + count:
            count += 1
        shift = text * count
        return shift if shift in OPERATORS else text

    def _parse_unary(self) -> exp.Expr:
        text = self._operator()
        if text not in ("-", "+", "~"):
            return self._postfix(self._primary())
        self._advance()
        if text == "-" and self._curr.token_type == TokenType.NUMBER:
            return self._postfix(exp.Neg(this=self._primary()))
        kind: type[exp.Expr] = {"-": exp.Neg, "+": Positive}.get(text, exp.BitwiseNot)
        return kind(this=self._parse_unary())

    # Operands

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr:  # noqa: ARG002
        return self._parse_unary()

    def _parse_column(self) -> exp.Expr:
        return self._postfix(self._primary())

    def _postfix(self, this: exp.Expr) -> exp.Expr:
        while True:
            kind = self._curr.token_type
            if kind == TokenType.L_BRACKET:
                self._advance()
                this = exp.Bracket(this=this, expressions=[self._parse_bitwise()])
                if not self._match(TokenType.R_BRACKET):
                    self.raise_error()
            elif kind == TokenType.DOT:
                this = self._field_of(this)
            elif kind == TokenType.DCOLON:
                self._advance()
                this = ColonCast(this=this, to=self._type())
            elif self._is_at("COLLATE") and is_word(self._at(1)):
                self._advance(2)
                this = exp.Collate(this=this, expression=exp.Var(this=self._prev.text))
            else:
                return this

    def _field_of(self, this: exp.Expr) -> exp.Expr:
        self._advance()
        if self._curr.token_type == TokenType.STAR:
            if not isinstance(this, exp.Column):
                self.raise_error()
            self._advance()
            return exp.Column(this=self._star(), table=this.this, db=this.args.get("table"))
        name = self._identifier()
        if self._curr.token_type == TokenType.L_PAREN:
            raise SqlError(f"calls {name.name.lower()}() through a catalog, which is not allowed", name.meta["start"])
        if isinstance(this, exp.Column) and not this.args.get("catalog"):
            before = this.args
            return exp.Column(this=name, table=before["this"], db=before.get("table"), catalog=before.get("db"))
        return exp.Dot(this=this, expression=name)

    def _identifier(self) -> exp.Identifier:
        """Any word may follow a dot."""
        token = self._curr
        if token.token_type != TokenType.IDENTIFIER and (not is_word(token) or " " in token.text):
            self.raise_error()
        self._advance()
        found = exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER)
        return found.update_positions(token)

    def _primary(self) -> exp.Expr:
        token, kind = self._curr, self._curr.token_type
        if kind == TokenType.L_PAREN:
            return self._parenthesised()
        if kind in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER, TokenType.HEX_STRING):
            self._advance()
            return self._literal(token)
        if kind == TokenType.STAR:
            self._advance()
            return self._star()
        word = word_of(token)
        if word in ("NULL", "TRUE", "FALSE"):
            self._advance()
            return exp.Null() if word == "NULL" else exp.Boolean(this=word == "TRUE")
        if word == "CASE":
            self._advance()
            return self._case()
        is_string = self._at(1).token_type in (TokenType.STRING, TokenType.RAW_STRING)
        if word in TYPED and is_string:
            self._advance(2)
            value = exp.Literal.string(self._prev.text).update_positions(self._prev)
            return TypedLiteral(this=exp.Var(this=word), expression=value)
        if word == "INTERVAL" and self._starts_interval():
            return self._interval()
        if word in LIKES and self._at(1).token_type == TokenType.L_PAREN:
            return self._call()
        if word in NO_NAME or (kind != TokenType.IDENTIFIER and not word):
            if word in ("SELECT", "WITH", "FROM"):
                raise SqlError(
                    f"uses {word}: subqueries are not allowed here (a column of that name needs `backticks`)",
                    token.start,
                )
            self.raise_error()
        if self._at(1).token_type == TokenType.L_PAREN:
            return cast("exp.Expr", self._parse_window(self._call()))
        return exp.Column(this=self._identifier())

    def _case(self) -> exp.Expr:
        subject = self._parse_disjunction() if word_of(self._curr) != "WHEN" else None
        branches = []
        while self._skip("WHEN"):
            condition = self._parse_disjunction()
            self._expect("THEN")
            branches.append(exp.If(this=condition, true=self._parse_disjunction()))
        default = self._parse_disjunction() if self._skip("ELSE") else None
        self._expect("END")
        return exp.Case(this=subject, ifs=branches, default=default)

    def _literal(self, token: Token) -> exp.Expr:
        if token.token_type == TokenType.NUMBER:
            return exp.Literal.number(token.text).update_positions(token)
        if token.token_type == TokenType.HEX_STRING:
            if not set(token.text) <= HEXADECIMAL:
                self.raise_error("", token)
            return exp.HexString(this=token.text)
        return cast("exp.Expr", exp.Literal.string(token.text).update_positions(token))

    def _star(self) -> exp.Expr:
        """A star is before; `EXCEPT (columns)` may follow."""
        found = exp.Star().update_positions(self._prev)
        if self._is_at("EXCEPT", "(") and word_of(self._at(2)) not in ("SELECT", "WITH") and self._at(2).text != "(":
            self._advance(2)
            found.set("except_", self._parse_csv(self._identifier))
            self._match_r_paren()
        is_end = self._index >= len(self._tokens) or self._curr.token_type in (TokenType.COMMA, TokenType.R_PAREN)
        if not is_end and not word_of(self._curr):  # a star is no value
            self.raise_error()
        return found

    def _parenthesised(self) -> exp.Expr:
        self._match_l_paren()
        if word_of(self._curr) in ("SELECT", "WITH"):
            found: exp.Expr = exp.Subquery(this=self._parse_statement())
        else:
            entries = self._parse_csv(self._parse_disjunction)
            found = exp.Paren(this=entries[0]) if len(entries) == 1 else exp.Tuple(expressions=entries)
        self._match_r_paren()
        return found

    def _starts_interval(self) -> bool:
        after = self._at(1)
        after = self._at(2) if after.text in ("-", "+") else after
        return after.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER)

    def _interval(self) -> exp.Expr:
        self._advance()
        pieces: list[exp.Expr] = [exp.Var(this="INTERVAL")]
        while self._at(-1) and (
            self._curr.text in ("-", "+")
            or self._curr.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER)
        ):
            sign = self._curr.text if self._curr.text in ("-", "+") and self._curr.token_type not in DELIMITED else ""
            number = self._at(1) if sign else self._curr
            unit = word_of(self._at(2 if sign else 1))
            is_value = number.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER)
            is_whole = len(pieces) == 1 and not sign and number.token_type != TokenType.NUMBER
            if not is_value or (unit not in UNITS and not is_whole):
                break
            self._advance(2 if sign else 1)
            pieces += [exp.Var(this=sign)] * bool(sign) + [self._literal(number)]
            if unit not in UNITS:
                break
            self._advance()
            pieces.append(exp.Var(this=unit))
        if len(pieces) - bool(sign) == 3 and self._is_at("TO") and word_of(self._at(1)) in UNITS:
            pieces += [exp.Var(this="TO"), exp.Var(this=word_of(self._at(1)))]
            self._advance(2)
        if len(pieces) == 1:
            self.raise_error()
        return Words(expressions=pieces)

    # Calls

    def _call(self) -> exp.Expr:
        name = self._identifier()
        word = "" if name.quoted else name.name.upper()
        self._match_l_paren()
        found: exp.Expr
        if word in ("CAST", "TRY_CAST"):
            value = self._parse_disjunction()
            self._expect("AS")
            kind = exp.Cast if word == "CAST" else exp.TryCast
            found = kind(this=value, to=self._type())
        else:
            found = exp.Anonymous(this=name, expressions=self._arguments(word))
        self._match_r_paren()
        return cast("exp.Expr", found.update_positions(name))

    def _arguments(self, word: str) -> list[exp.Expr]:
        if self._curr.token_type == TokenType.R_PAREN:
            return []
        if word in UNIT_FIRST and word_of(self._curr) in UNITS and self._at(1).token_type == TokenType.COMMA:
            self._advance(2)
            unit = exp.Var(this=word_of(self._at(-2)))
            return [unit, *self._parse_csv(self._argument)]
        if word in BETWEEN_ARGUMENTS:
            return self._worded(word)
        if self._match(TokenType.DISTINCT):
            return [exp.Distinct(expressions=self._parse_csv(self._argument))]
        if word_of(self._curr) == "ALL" and self._at(1).token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            self._advance()
            return [Words(expressions=[exp.Var(this="ALL"), self._argument()]), *self._more_arguments()]
        return cast("list[exp.Expr]", self._parse_csv(self._argument if word != "STRUCT" else self._aliased))

    def _more_arguments(self) -> list[exp.Expr]:
        return self._parse_csv(self._argument) if self._match(TokenType.COMMA) else []

    def _worded(self, word: str) -> list[exp.Expr]:
        """Commas, or the words of this call, between the arguments."""
        between = BETWEEN_ARGUMENTS[word]
        pieces: list[exp.Expr] = []
        if word == "TRIM" and word_of(self._curr) in SIDES and self._at(1).token_type not in (
            TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT,
        ):  # fmt: skip
            self._advance()
            pieces.append(exp.Var(this=word_of(self._prev)))
            if self._skip("FROM"):
                pieces.append(exp.Var(this="FROM"))
        entry = self._parse_bitwise() if "IN" in between else self._argument()
        if not pieces and (word_of(self._curr) not in between):
            return [entry, *self._more_arguments()]
        if word == "EXTRACT":
            is_unit = isinstance(entry, exp.Column) and len(entry.parts) == 1 and not entry.this.args.get("quoted")
            entry = exp.Var(this=entry.name) if is_unit else entry
        pieces.append(entry)
        while word_of(self._curr) in between:
            self._advance()
            pieces += [exp.Var(this=word_of(self._prev)), self._argument()]
        return [Words(expressions=pieces)]

    def _aliased(self) -> exp.Expr:
        value = self._argument()
        if not self._match(TokenType.ALIAS):
            return value
        return exp.Alias(this=value, alias=self._identifier())

    def _argument(self) -> exp.Expr:
        token, after = self._curr, self._at(1)
        is_name = token.token_type == TokenType.IDENTIFIER or (is_word(token) and word_of(token) not in NO_NAME)
        if is_name and after.token_type == TokenType.ARROW:
            names = [self._identifier()]
            self._advance()
            return exp.Lambda(this=self._parse_disjunction(), expressions=names)
        if is_name and after.token_type == TokenType.FARROW:
            name = self._identifier()
            self._advance()
            return exp.Kwarg(this=name, expression=self._parse_disjunction())
        if token.token_type == TokenType.L_PAREN and self._is_lambda():
            self._advance()
            names = self._parse_csv(self._identifier)
            self._match_r_paren()
            self._advance()
            return exp.Lambda(this=self._parse_disjunction(), expressions=names)
        value = self._required(self._parse_disjunction())
        for word, kind in (("IGNORE", exp.IgnoreNulls), ("RESPECT", exp.RespectNulls)):
            if self._is_at(word) and word_of(self._at(1)) == "NULLS":
                self._advance(2)
                return cast("exp.Expr", kind(this=value))
        return value

    def _is_lambda(self) -> bool:
        """`(a, b) ->` is here."""
        distance = 1
        while is_word(self._at(distance)) or self._at(distance).token_type in (TokenType.IDENTIFIER, TokenType.COMMA):
            distance += 1
        return (
            self._at(distance).token_type == TokenType.R_PAREN and self._at(distance + 1).token_type == TokenType.ARROW
        )

    def _parse_function(self, *_: Any, **__: Any) -> exp.Expr | None:
        """The function where a table could stand."""
        token = self._curr
        is_name = token.token_type == TokenType.IDENTIFIER or (is_word(token) and word_of(token) not in NO_NAME)
        return self._call() if is_name and self._at(1).token_type == TokenType.L_PAREN else None

    # Types

    def _type(self) -> exp.Expr:
        return exp.DataType(this=exp.DType.USERDEFINED, kind=self._type_text())

    def _type_text(self) -> str:
        word = word_of(self._curr)
        self._advance()
        if word == "STRUCT":
            return f"STRUCT<{self._angled(self._struct_field)}>"
        if word in ("ARRAY", "MAP"):
            return f"{word}<{self._angled(self._type_text)}>"
        if word == "INTERVAL":
            return self._interval_type()
        if word in SIZED_TYPES and self._match(TokenType.L_PAREN):
            sizes = self._parse_csv(self._size)
            self._match_r_paren()
            return f"{word}({', '.join(sizes)})"
        if word in SIZED_TYPES and word in ("DECIMAL", "DEC", "NUMERIC", "TIME"):
            return word
        if word == "STRING" and self._is_at("COLLATE") and is_word(self._at(1)):
            self._advance(2)
            return f"STRING COLLATE {self._prev.text}"
        if word not in SIMPLE_TYPES:
            self._advance(-1)
            raise SqlError(f"has {self._curr.text!r}, which is not a type", self._curr.start if self._curr else None)
        return word

    def _angled(self, entry: Any) -> str:
        if self._curr.token_type in (TokenType.NEQ,) and self._curr.text == "<>":  # an empty struct
            self._advance()
            return ""
        if not self._match(TokenType.LT):
            self.raise_error()
        found = ", ".join(self._parse_csv(entry))
        if not self._match(TokenType.GT):
            self.raise_error()
        return found

    def _struct_field(self) -> str:
        name = self._identifier().name.replace("`", "``")
        if self._curr.text == ":":
            self._advance()
        kind = self._type_text()
        if self._is_at("NOT") and word_of(self._at(1)) == "NULL":
            self._advance(2)
            kind += " NOT NULL"
        return f"`{name}`: {kind}"

    def _size(self) -> str:
        if self._curr.token_type != TokenType.NUMBER or not self._curr.text.isdecimal():
            self.raise_error()
        self._advance()
        return str(self._prev.text)

    def _interval_type(self) -> str:
        words = [word_of(self._curr)]
        self._advance()
        if self._skip("TO"):
            words += ["TO", word_of(self._curr)]
            self._advance()
        if not {*words} <= {*UNITS, "TO"}:
            self.raise_error()
        return f"INTERVAL {' '.join(words)}"

    # Queries

    def _parse_statement(self) -> exp.Expr:
        if word_of(self._curr) not in ("SELECT", "WITH") and self._curr.token_type != TokenType.L_PAREN:
            if word_of(self._curr) == "FROM":
                raise SqlError("begins a query with FROM", self._curr.start)
            raise SqlError("is not a SELECT", self._curr.start if self._curr else None)
        found = self._required(self._parse_select(nested=True))
        if not isinstance(found, exp.Subquery):
            return found
        return self._required(self._parse_query_modifiers(self._parse_set_operations(found)))

    def _parse_select_query(self, *arguments: Any, **details: Any) -> exp.Expr | None:
        if word_of(self._curr) == "FROM":
            raise SqlError("begins a query with FROM", self._curr.start)
        return super()._parse_select_query(*arguments, **details)

    def _parse_join(self, *arguments: Any, **details: Any) -> Any:
        self.joins_tried += 1
        if self.joins_tried > JOINS_TRIED_MAX:
            raise SqlError("has too many joins without ON: write ON or USING for each, or CROSS JOIN", self._curr.start)
        is_comma = self._curr.token_type == TokenType.COMMA
        found = super()._parse_join(*arguments, **details)
        if found is not None and is_comma:
            found.set("comma", True)
        return found

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:  # noqa: ARG002
        if not self._match(TokenType.GROUP_BY):
            return None
        if word_of(self._curr) == "ALL":
            self._advance()
            return exp.Group(all=True)
        found = exp.Group(expressions=self._parse_csv(self._grouping))
        if word_of(self._curr) == "WITH" and word_of(self._at(1)) in ("ROLLUP", "CUBE"):
            self._advance(2)
            found.set("suffix", Words(expressions=[exp.Var(this="WITH"), exp.Var(this=word_of(self._prev))]))
        elif word_of(self._curr) == "GROUPING SETS":
            found.set("suffix", self._grouping())
        return found

    def _grouping(self) -> exp.Expr:
        word = word_of(self._curr)
        if word not in ("ROLLUP", "CUBE", "GROUPING SETS"):
            return cast("exp.Expr", self._parse_disjunction())
        self._advance()
        self._match_l_paren()
        entries = self._parse_csv(self._grouping_set if word == "GROUPING SETS" else self._parse_disjunction)
        self._match_r_paren()
        return Words(expressions=[exp.Var(this=word), exp.Tuple(expressions=entries)])

    def _grouping_set(self) -> exp.Expr:
        if self._curr.text == "(" and self._at(1).text == ")":
            self._advance(2)
            return exp.Tuple(expressions=[])
        return self._grouping()

    def _parse_ordered(self, parse_method: Any = None) -> exp.Ordered:  # noqa: ARG002 (sqlglot's signature)
        found = exp.Ordered(this=self._parse_disjunction())
        if self._match_set((TokenType.ASC, TokenType.DESC)):
            found.set("desc", self._prev.token_type == TokenType.DESC)
        if self._is_at("NULLS") and word_of(self._at(1)) in ("FIRST", "LAST"):
            self._advance(2)
            found.set("nulls_first", word_of(self._prev) == "FIRST")
        return found

    # Tokens

    def _advance(self, times: int = 1) -> None:
        if self._index + times > len(self._tokens):
            raise SqlError("ends too early", self._tokens[-1].start)
        super()._advance(times)

    def _at(self, distance: int) -> Token:
        place = self._index + distance
        return self._tokens[place] if 0 <= place < len(self._tokens) else Token.var("")

    def _is_at(self, word: str, symbol: str = "") -> bool:
        return word_of(self._curr) == word and (not symbol or self._at(1).text == symbol)

    def _skip(self, word: str) -> bool:
        if word_of(self._curr) != word:
            return False
        self._advance()
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self.raise_error()

    def _required(self, found: Any) -> exp.Expr:
        if found is None:
            self.raise_error()
        return cast("exp.Expr", found)
