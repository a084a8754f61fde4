"""The options of the source: those of Spark's kafka source, refused ones, and misspelled ones."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.pipelines.source.options import (
    COLUMNS,
    DEFAULT_COLUMNS,
    EARLIEST,
    KNOWN_OPTIONS,
    LATEST,
    Bound,
    OptionError,
    Options,
    read_options,
)

NEEDED = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def options(is_stream: bool | None = None, **more: Any) -> Options:
    return read_options({**NEEDED, **more}, is_stream)


def refused(is_stream: bool | None = None, **more: Any) -> str:
    with pytest.raises(OptionError) as caught:
        options(is_stream, **more)
    return str(caught.value)


def test_names_count_in_any_case_because_spark_writes_them_small() -> None:
    assert options(startingoffsets="latest").starting == options(startingOffsets="LATEST").starting
    assert options(maxoffsetspertrigger="5").offsets_per_trigger_max == 5


def problem_of(**given: str) -> str:
    """The problem of these options; empty if they are valid."""
    try:
        options(**given)
    except OptionError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("name", KNOWN_OPTIONS)
def test_no_known_option_is_called_unknown(name: str) -> None:
    assert "has no option" not in problem_of(**{name.lower(): "\x00"})


def test_an_unknown_option_is_an_error_that_names_the_closest() -> None:
    assert "did you mean startingOffsets?" in refused(startingOffset="earliest")
    assert "did you mean maxOffsetsPerTrigger?" in refused(maxoffsetpertrigger="1")
    assert "did you mean kafka.bootstrap.servers?" in refused(**{"bootstrap.servers": "h:1"})
    assert "name the topic with the option subscribe" in refused(path="/tmp")


def test_the_servers_are_needed() -> None:
    with pytest.raises(OptionError, match=re.escape("kafka.bootstrap.servers is missing")):
        read_options({"subscribe": "t"})


def test_exactly_one_subscription() -> None:
    assert "none is there" in refused_without_topic()
    assert "subscribe and assign are there" in refused(assign='{"t":[0]}')


def refused_without_topic() -> str:
    with pytest.raises(OptionError) as caught:
        read_options({"kafka.bootstrap.servers": "h:1"})
    return str(caught.value)


def test_subscriptions() -> None:
    assert options(subscribe="a, b,,a").subscription.topics == ("a", "b")
    found = read_options({"kafka.bootstrap.servers": "h:1", "assign": '{"Tt":[0,2]}'}).subscription
    assert found.partitions == (TopicPartition("Tt", 0), TopicPartition("Tt", 2))
    found = read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "t.*"}).subscription
    assert found.pattern == "t.*"


@pytest.mark.parametrize("text", ["x", "[1]", '{"t":1}', '{"t":["x"]}', "{}"])
def test_a_wrong_assignment_is_shown_the_right_form(text: str) -> None:
    with pytest.raises(OptionError, match="topicA"):
        read_options({"kafka.bootstrap.servers": "h:1", "assign": text})


def test_a_pattern_must_be_one() -> None:
    with pytest.raises(OptionError, match="not a regular expression"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("})


@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_kafka_options_that_spark_forbids_are_refused(name: str) -> None:
    assert f"kafka.{name} cannot be used" in refused(**{f"kafka.{name}": "x"})


def test_streams_begin_at_the_end_and_batches_at_the_beginning() -> None:
    assert options(is_stream=True).starting == Bound(all_partitions=LATEST)
    assert options(is_stream=False).starting == Bound(all_partitions=EARLIEST)
    assert options(is_stream=False).ending == Bound(all_partitions=LATEST)


def test_offsets_as_json() -> None:
    found = options(startingOffsets='{"Topic":{"0":23,"1":-2}}').starting
    assert found.offsets == {TopicPartition("Topic", 0): 23, TopicPartition("Topic", 1): -2}
    assert "earliest, latest or offsets as JSON" in refused(startingOffsets="first")
    assert "must be of the form" in refused(startingOffsets='{"t":5}')
    assert "must be of the form" in refused(startingOffsets="{nonsense")
    assert "below -2" in refused(startingOffsets='{"t":{"0":-3}}')


def test_times_go_before_offsets_and_one_time_before_many() -> None:
    times = '{"t":{"0":1000}}'
    found = options(startingOffsets="latest", startingOffsetsByTimestamp=times)
    assert found.starting.times_ms == {TopicPartition("t", 0): 1000}
    assert options(startingOffsetsByTimestamp=times, startingTimestamp="5").starting.time_ms == 5
    assert "startingTimestamp must be a whole number" in refused(startingTimestamp="yesterday")


def test_what_only_one_kind_of_query_can_have() -> None:
    assert "a stream has no end" in refused(True, endingOffsets="latest")
    assert "cannot start at latest" in refused(False, startingOffsets="latest")
    assert "cannot start at latest" in refused(False, startingOffsets='{"t":{"0":-1}}')
    assert "cannot end at earliest" in refused(False, endingOffsets="earliest")
    options(False, maxOffsetsPerTrigger="5")  # only a warning


def test_columns() -> None:
    assert options().columns == DEFAULT_COLUMNS
    assert options(includeHeaders="true").columns == COLUMNS
    assert options(columns="value, timestamptype").columns == ("value", "timestampType")
    assert "there is no column 'valu'" in refused(columns="valu")


def test_isolation_is_that_of_kafka_unless_it_is_given() -> None:
    assert not options().is_read_committed
    assert options(**{"kafka.isolation.level": "read_committed"}).is_read_committed
    assert "kafka.isolation.level is" in refused(**{"kafka.isolation.level": "x"})


def test_numbers_flags_and_durations() -> None:
    found = options(minPartitions="7", failOnDataLoss="FALSE", maxTriggerDelay="30s")
    assert (found.partitions_min, found.fails_on_data_loss, found.trigger_delay_ms_max) == (7, False, 30_000)
    assert options(maxTriggerDelay="5 min").trigger_delay_ms_max == 300_000
    assert "minPartitions must be a whole number of at least 1" in refused(minPartitions="0")
    assert "failOnDataLoss is true or false" in refused(failOnDataLoss="no")
    assert "such as 15m" in refused(maxTriggerDelay="soon")


def test_settings_of_security_are_those_of_the_client() -> None:
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    found = options(**given).properties
    assert {name: found[name.removeprefix("kafka.")] for name in given} == given
