"""The SQL that a pipeline may contain: expressions on columns, without code execution, file access, or failures on
data.

Pipeline files may come from untrusted sources, and Spark's SQL can call Java, start programs and read any file.
Rejected text never reaches Spark. In doubt it is rejected: quote a column name with backticks to avoid that.

Three kinds of text:
    check_expression   derive, and other column expressions: no subquery, nothing random
    check_condition    filter, rule, sinks' where: also no clock, because a replay must give the same result
    check_query        sql: one SELECT over the streams and tables that the step names (sql_query.py)

Most casts of 'now' or 'today' are known only after Spark has resolved the types: running/special_times.py rejects them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.pipelines.steps.sql_tokens import END, SqlError, Token, tokenize

RUNS_CODE = {"reflect", "java_method", "try_reflect"}
READS_FILES = {
    "from_protobuf",
    "to_protobuf",
    "from_avro",
    "to_avro",
    "schema_of_avro",
    "from_xml",
    "schema_of_xml",
    "python_worker_logs",
}
FAILS = {
    "raise_error": "the `rule` step", "assert_true": "the `rule` step", "parse_json": "try_parse_json",
    "to_number": "try_to_number", "to_binary": "try_to_binary", "url_decode": "try_url_decode",
    "aes_decrypt": "try_aes_decrypt", "validate_utf8": "try_validate_utf8", "variant_get": "try_variant_get",
    **dict.fromkeys(
        ("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number",
         "xpath_short", "xpath_string"), "the `python` step"
    ),
}  # fmt: skip
RANDOM = {
    "rand", "randn", "random", "uniform", "randstr", "uuid", "shuffle", "monotonically_increasing_id",
    "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
}  # fmt: skip
CLOCK = {"now", "current_timestamp", "current_date", "curdate", "localtimestamp"}
CLOCK_WITHOUT_ARGUMENTS = {"unix_timestamp"}
TIME_OF_DAY = "current_time"  # not the batch's time, unlike the other clocks: a repeated batch gets another one
TYPED_LITERALS = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}
# Spark's parser replaces 'now', 'today', 'tomorrow' and 'yesterday' with its clock, and completes a time of day with
# today.
TIME_FUNCTIONS = {
    "date", "timestamp", "to_date", "try_to_date", "to_timestamp", "try_to_timestamp", "to_timestamp_ltz",
    "to_timestamp_ntz",
}  # fmt: skip
CLOCK_LITERAL = re.compile(
    r"""[rR]?(['"])\s*(?:now|today|tomorrow|yesterday|T?\d{1,2}:\d{1,2}.*)\s*\1""", re.DOTALL | re.IGNORECASE
)
FIXED_LITERAL = re.compile(r"""[rR]?(['"])\s*(?:[+-]?\d{4,7}(?:[-\sT].*)?|epoch\s*)\1""", re.DOTALL | re.IGNORECASE)
REFUSED_WORDS = {
    "SELECT", "WITH", "TABLE", "VALUES", "USING", "IDENTIFIER", "INSERT", "MERGE", "UPDATE", "DELETE", "OVERWRITE",
    "DIRECTORY",
}  # fmt: skip
FROM_FUNCTIONS = {"extract", "trim", "ltrim", "rtrim", "btrim", "substring", "substr", "overlay", "position"}


def check_expression(text: str) -> str | None:
    """Why this expression is not allowed, or None."""
    return _problem(text, is_condition=False)


def check_condition(text: str) -> str | None:
    """Why this condition is not allowed, or None."""
    return _problem(text, is_condition=True)


def asks_the_time(text: str) -> bool:
    """Whether the value of this allowed expression depends on when it is computed."""
    return check_condition(text) is not None and check_expression(text) is None


def check_query(text: str, tables: Sequence[str] = ()) -> str | None:
    """Why this query is not allowed, or None; `tables` are the names that it may read besides `stream`."""
    from ottla.pipelines.steps.sql_query import rewrite_query  # # noqa: PLC0415 (it imports this module)

    try:
        rewrite_query(text, tables)
    except SqlError as problem:
        return str(problem)
    return None


def check_function(tokens: Sequence[Token], place: int) -> None:
    """The name at this position is followed by a bracket. Raises SqlError."""
    name = tokens[place].name
    if place and tokens[place - 1].is_symbol("."):
        raise SqlError(f"calls {name}() through a catalog, which is not allowed")
    if name in RUNS_CODE:
        raise SqlError(f"calls {name}(), which runs code")
    if name in READS_FILES:
        raise SqlError(f"calls {name}(), which reads files; use the `parse` step")
    if name in FAILS:
        raise SqlError(f"calls {name}(), which stops the whole query on one bad record; use {FAILS[name]}")
    if name in RANDOM:
        raise SqlError(f"calls {name}(): a replay would give another result; use the `sample` step for samples")


def check_clock(tokens: Sequence[Token], place: int) -> None:
    """Reject times that are computed once for all rows, or again for a repeated batch. Raises SqlError."""
    token = tokens[place]
    before = tokens[place - 1] if place else END
    after = tokens[place + 1] if place + 1 < len(tokens) else END
    if token.kind in ("string", "raw"):
        is_typed = before.word in TYPED_LITERALS and not FIXED_LITERAL.fullmatch(token.text)
        if is_typed or (_is_cast_to_time(tokens, place) and CLOCK_LITERAL.fullmatch(token.text)):
            raise SqlError(
                f"has {token.text} as a time, which is computed once, when the query starts, and not for each batch:"
                " write a whole date, or use current_timestamp() or current_date()"
            )
    if token.name == TIME_OF_DAY and (after.is_symbol("(") or token.kind == "word") and not before.is_symbol("."):
        raise SqlError(
            f"asks for the time ({TIME_OF_DAY}): a repeated batch would get another one;"
            " use date_format(current_timestamp(), 'HH:mm:ss') (a column of that name needs `backticks`)"
        )


def _problem(text: str, *, is_condition: bool) -> str | None:
    try:
        tokens = tokenize(text)
        if not tokens:
            return "is empty"
        _check_text(text)
        _walk(tokens, is_condition)
    except SqlError as problem:
        return str(problem)
    return None


def _check_text(text: str) -> None:
    """Spark gets the text itself, so the tokens must cover all of it."""
    if "--" in text or "/*" in text:
        raise SqlError("has a comment, or -- in it: write comments with # in the YAML file")


def _walk(tokens: list[Token], is_condition: bool) -> None:
    enclosing: list[str] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else END
        after = tokens[place + 1] if place + 1 < len(tokens) else END
        if token.is_symbol("("):
            enclosing.append(before.name)
        elif token.is_symbol(")"):
            enclosing.pop()
        elif token.word in REFUSED_WORDS and not before.is_symbol("."):
            raise SqlError(
                f"uses {token.word}: subqueries are not allowed here (a column of that name needs `backticks`)"
            )
        elif token.word == "FROM":
            check_from(tokens, place, enclosing[-1] if enclosing else "")
        if token.name and after.is_symbol("("):
            check_function(tokens, place)
        check_clock(tokens, place)
        if is_condition and _asks_the_clock(token, after, tokens[place + 2 : place + 3]):
            raise SqlError(
                f"asks for the time ({token.name}): a replay would decide otherwise; compare columns instead"
            )


def _is_cast_to_time(tokens: Sequence[Token], place: int) -> bool:
    """For literal text; computed values are checked by running/special_times.py."""
    function = tokens[place - 2].name if place > 1 and tokens[place - 1].is_symbol("(") else ""
    after, then = (*tokens[place + 1 : place + 3], END, END)[:2]
    if after.is_symbol("::") or (after.word == "AS" and function in ("cast", "try_cast")):
        return then.word in TYPED_LITERALS
    return after.is_symbol(")") and function in TIME_FUNCTIONS


def check_from(tokens: Sequence[Token], place: int, function: str) -> None:
    """FROM inside an expression. Raises SqlError."""
    before = tokens[place - 1] if place else END
    is_distinct = before.word == "DISTINCT" and place >= 2 and tokens[place - 2].word in ("IS", "NOT")
    if not is_distinct and (function not in FROM_FUNCTIONS or before.is_symbol("(")):
        raise SqlError("uses FROM: subqueries are not allowed here (a column of that name needs `backticks`)")


def _asks_the_clock(token: Token, after: Token, then: Sequence[Token]) -> bool:
    if token.name in CLOCK_WITHOUT_ARGUMENTS:
        return after.is_symbol("(") and bool(then) and then[0].is_symbol(")")
    if token.name in CLOCK and after.is_symbol("("):
        return True
    return token.word.lower() in CLOCK - {"now", "curdate"} and token.kind == "word"
