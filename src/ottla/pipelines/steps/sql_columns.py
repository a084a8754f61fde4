"""The columns that an SQL expression needs, as far as that is known without Spark.

Only plain expressions are analyzed: columns, literals, operators, functions, CASE. There, every word that is neither a
function nor a keyword is a column. Other syntax (casts, intervals, lambdas, units of time as arguments, FROM inside
functions, …) contains names that are not columns: such expressions are skipped.
"""

from __future__ import annotations

from ottla.pipelines.steps.sql_tokens import END, SqlError, Token, tokenize

PLAIN_WORDS = {
    "AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "CASE",
    "WHEN", "THEN", "ELSE", "END", "DIV",
}  # fmt: skip
WITHOUT_BRACKETS = {  # functions that need no parentheses
    "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "SESSION_USER", "USER",
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_SCHEMA",
}  # fmt: skip
OTHER_WORDS = {
    "AS", "CAST", "TRY_CAST", "INTERVAL", "EXTRACT", "OVER", "FROM", "FOR", "BOTH", "LEADING", "TRAILING", "PLACING",
    "COLLATE", "ESCAPE", "ANY", "SOME", "ALL", "DISTINCT", "FILTER", "WITHIN", "GROUP", "ORDER", "BY", "ASC", "DESC",
    "NULLS", "EXISTS", "AT", "TIME", "ZONE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "SYMMETRIC",
    "ASYMMETRIC", "STRUCT", "ARRAY", "MAP", "UNKNOWN",
}  # fmt: skip
OTHER_SYMBOLS = {"->", "=>", "::", ":", "["}
WITH_UNITS = {
    "timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "date_sub", "position", "trim",
    "overlay", "substring", "substr", "ltrim", "rtrim", "btrim", "listagg", "string_agg",
}  # fmt: skip


def needed_columns(text: str) -> list[str]:
    """Column names as written; of paths the first part. Empty if uncertain."""
    try:
        tokens = tokenize(text)
    except SqlError:
        return []
    if any(_is_other(token, after) for token, after in zip(tokens, [*tokens[1:], END], strict=True)):
        return []
    found: list[str] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else END
        after = tokens[place + 1] if place + 1 < len(tokens) else END
        if not token.name or before.is_symbol(".") or after.is_symbol("("):
            continue
        if token.word not in PLAIN_WORDS and token.word not in WITHOUT_BRACKETS:
            found.append(token.text if token.kind == "word" else token.text[1:-1].replace("``", "`"))
    return list(dict.fromkeys(found))


def _is_other(token: Token, after: Token) -> bool:
    if token.kind == "symbol":
        return token.text in OTHER_SYMBOLS
    if token.name and after.is_symbol("("):
        return token.word in OTHER_WORDS or token.name in WITH_UNITS
    is_before_literal = bool(token.word) and after.kind in ("string", "raw") and token.word not in PLAIN_WORDS
    return token.word in OTHER_WORDS or is_before_literal
