"""Offsets stored in a database."""

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.external_offsets import (
    CONFLICTING_OFFSET,
    offsets_from_rows,
    offsets_json,
    offsets_to_rows,
    parse_offset_log,
    reject_different_start,
)

PLANNED = 'v1\n{"batchWatermarkMs":0}\n{"a":{"0":12,"1":7}}\n{"logOffset":3}\n-\n{"b":{"0":1}}'


def test_offsets_are_read_from_what_spark_plans() -> None:
    assert parse_offset_log(PLANNED) == {"a": {0: 12, 1: 7}, "b": {0: 1}}
    assert parse_offset_log("v1\n{}") == {}


def test_a_partition_that_two_sources_have_read_to_different_ends_has_no_offset() -> None:
    text = 'v1\n{}\n{"a":{"0":12,"1":7}}\n{"a":{"0":10,"1":7}}\n{"a":{"0":12,"1":7}}'
    assert parse_offset_log(text) == {"a": {0: CONFLICTING_OFFSET, 1: 7}}


def test_offsets_survive_the_table() -> None:
    offsets = {"a": {0: 12, 1: 7}}
    assert offsets_from_rows([row[1:] for row in offsets_to_rows("q", offsets)]) == offsets


def test_offsets_are_formatted_as_a_source_option() -> None:
    assert offsets_json({"a": {0: 12}}) == '{"a": {"0": 12}}'
    assert offsets_json({}) == ""


def test_a_new_checkpoint_must_begin_where_the_rows_end() -> None:
    reject_different_start("query q", {"a": {0: 12}}, {"a": {0: 12}})
    reject_different_start("query q", {"a": {0: 12, 1: 0}, "b": {0: 0}}, {"a": {0: 12}})  # partitions added since then
    for started in (None, {}, {"a": {0: 11}}):
        with pytest.raises(SinkError, match="start the query at these offsets"):
            reject_different_start("query q", started, {"a": {0: 12}})
