"""Declarations compared with samples: nothing is silently null or rounded."""

from __future__ import annotations

import pytest

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.model.inference import infer_json
from ottla.pipelines.sql.catalog import Catalog, compare
from ottla.pipelines.sql.documents import Head
from ottla.pipelines.sql.tables import Table


def told(columns: dict[str, str], *samples: bytes) -> list[str]:
    return compare(Table("t", "t", columns=columns), infer_json(samples))


def test_a_name_in_two_spellings_gives_a_remark() -> None:
    samples = (b'{"v": 1}', b'{"v": 2}', b'{"V": 3}')
    assert told({"v": "bigint"}, *samples) == ["V: so some samples write v, which is NULL there"]
    assert told({"V": "bigint"}, *samples) == ["v: so some samples write V, which is NULL there"]


def test_a_name_that_no_record_has_gives_a_remark_or_an_error() -> None:
    assert told({"w": "bigint"}, b'{"v": 1}') == ["w: in none of 1 samples, NULL there"]
    with pytest.raises(SqlError, match="has the column V, which its records call v"):
        told({"V": "bigint"}, b'{"v": 1}')


def test_numbers_rounded_as_text_give_a_remark() -> None:
    rounded = ["v: numbers as text are rounded (1.10 is 1.1); DECIMAL(38, 18) keeps digits"]
    assert told({"v": "string"}, b'{"v": 1.10}') == rounded
    assert told({"v": "string"}, b'{"v": 1.10}', b'{"v": "x"}') == rounded
    assert told({"v": "decimal(38,18)"}, b'{"v": 1.10}') == []
    assert told({"v": "string"}, b'{"v": 1}', b'{"v": "x"}') == []


@pytest.mark.parametrize("starting", ["group-offsets", "timestamp", "latst"])
def test_a_table_that_begins_nowhere_is_refused_when_it_is_declared(starting: str) -> None:
    with pytest.raises(SqlError, match=f"'{starting}' is not earliest, latest, a time"):
        Catalog(Head("127.0.0.1:1")).declare(Table("t", "t", starting=starting))
