"""Advice about settings that do not apply is removed, and working advice is added."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from ottla.pipelines.running.spark_advice import with_advice

SETTING = '"spark.sql.ansi.enabled"'
ADVISES = re.compile(r"(?<!is )\b(?:set|setting|increase|consider|enable)\b[^.]*\bspark\.[a-z]", re.IGNORECASE)
ABOUT_SETTINGS = ("INVALID_CONF_VALUE", "UNTYPED_SCALA_UDF", "_LEGACY_ERROR_TEMP_1298")  # or for Scala programs


def conditions() -> Iterator[tuple[str, str]]:
    """Name and template of all error conditions of Spark."""
    (jar,) = Path(pyspark.__path__[0], "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as opened:
        known = json.loads(opened.read("error/error-conditions.json"))
    for name, found in known.items():
        words = " ".join(found["message"])
        yield name, words
        for kind, more in found.get("subClass", {}).items():
            yield f"{name}.{kind}", f"{words} {' '.join(more['message'])}"


def filled(template: str) -> str:
    names = r"[cC]onf|Policy|autoBroadcast|driverMemory|broadcastTimeout"
    return re.sub(r"<(\w+)>", lambda found: SETTING if re.search(names, found[1]) else "'x'", template)


def test_no_setting_is_advised() -> None:
    checked = 0
    for name, template in conditions():
        text = filled(template)
        if ADVISES.search(text) and not name.startswith(ABOUT_SETTINGS):
            checked += 1
            told = with_advice(text)
            assert not ADVISES.search(told), (name, told)
            assert told, name
    assert checked > 50


BYPASS = f'If necessary set {SETTING} to "false" to bypass this error'
SUBQUERY = "More than one row returned by a subquery used as an expression"
PATTERN = "Fail to recognize 'aaaa' pattern in the DateTimeFormatter"
LAMBDA = "The lambda function has duplicate arguments `t`, `t`. Please, consider to rename the argument names"
SAID = [
    ("YearMonthIntervalType.fromInternal is not implemented.", "is not implemented", "cast it to STRING"),
    ('[UNSUPPORTED_DATATYPE] Unsupported data type "TIMESTAMP(3)"', '"TIMESTAMP(3)"', "write TIMESTAMP"),
    ('[DATATYPE_MISSING_SIZE] DataType "VARCHAR" requires a length parameter', "length parameter", "write STRING"),
    (
        f"[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL. {BYPASS}.",
        "Division by zero",
        "NULLIF(divisor, 0) or try_divide",
    ),
    (f" 5 cannot be represented as Decimal(3, 2). {BYPASS}, and return NULL instead.", " as Decimal(3, 2)", "DOUBLE"),
    (f"SparkException: [SCALAR_SUBQUERY_TOO_MANY_ROWS] {SUBQUERY}.", SUBQUERY, "let it give one"),
    (
        "Query [id = 2e66-a, runId = 9c14-b] terminated with exception: [REMAINDER_BY_ZERO] Remainder by zero.",
        "Remainder by zero",
        "try_mod",
    ),
    (f"You may get a different result due to the upgrading to Spark >= 3.0: {PATTERN}.", PATTERN, "https://"),
    (f'{LAMBDA} or set "spark.sql.caseSensitive" to "true".', LAMBDA, "give one of them another name"),
]


@pytest.mark.parametrize(("said", "cause", "cure"), SAID)
def test_working_advice_is_added(said: str, cause: str, cure: str) -> None:
    told, _, advice = with_advice(said).partition("; ")
    assert told.endswith(cause)
    assert cure in advice
    assert with_advice(f"{told}; {advice}") == f"{told}; {advice}"


@pytest.mark.parametrize("said", ["The value 'spark.x' cannot be cast.", "OutOfMemoryError: Java heap space"])
def test_other_words_are_left_as_they_are(said: str) -> None:
    assert with_advice(said) == said
