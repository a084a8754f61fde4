"""Advice about topics: each rule returns advice only if its measurement is unambiguous."""

import os
from collections import Counter
from typing import Any

import pytest

from ottla.operations.advice.advice import Advice
from ottla.operations.advice.topic_rules import (
    SampledBatch,
    TopicFacts,
    Traffic,
    advise_topic,
    best_linger,
    compressed_bytes,
    merge_batches,
)
from ottla.protocol.compression import LZ4, ZSTD

HEADER_BYTES = 61


def batch(at_ms: int = 0, payload: bytes = b"x" * 100, **fields: Any) -> SampledBatch:
    plain = SampledBatch(0, -1, LZ4, HEADER_BYTES + len(payload), 1, 1, at_ms, payload)
    return plain._replace(**fields)


def facts(**fields: Any) -> TopicFacts:
    return TopicFacts("orders", **{"partitions": 1, "replication_factor": 1, "sampled": (0,), **fields})


def advice(**fields: Any) -> dict[str, Advice]:
    return {each.rule: each for each in advise_topic(facts(**fields)).advice}


# ---- batches


def test_batches_are_put_together_until_the_wait_is_over() -> None:
    groups = merge_batches([batch(at) for at in (0, 4, 5, 6, 30)], linger_ms=5)
    assert [[each.first_ms for each in group] for group in groups] == [[0, 4, 5], [6], [30]]


def test_batches_are_put_together_until_they_are_full() -> None:
    assert [len(group) for group in merge_batches([batch(0) for _ in range(7)], 5, batch_bytes=300)] == [3, 3, 1]


def test_producers_and_partitions_do_not_share_batches() -> None:
    mixed = [batch(0, producer_id=1), batch(0, producer_id=2), batch(1, producer_id=1), batch(1, partition=1)]
    assert [len(group) for group in merge_batches(mixed, 5)] == [2, 1, 1]


def test_the_shortest_wait_that_brings_much_is_advised() -> None:
    every_ms = [batch(at) for at in range(100)]
    assert best_linger(every_ms).linger_ms == 5
    every_5_ms = [batch(at) for at in range(0, 1000, 5)]
    assert best_linger(every_5_ms).linger_ms == 20
    every_10_ms = [batch(at) for at in range(0, 1000, 10)]
    assert best_linger(every_10_ms).linger_ms == 100


def test_tiny_batches_are_reported_with_the_effect_of_linger() -> None:
    said = advice(batches=[batch(at) for at in range(0, 600, 4)])["tiny-batches"]
    assert said.estimates["linger_ms"] == 20
    assert said.estimates["records_per_batch"] == pytest.approx(6, abs=0.1)
    assert said.estimates["times_fewer"] == pytest.approx(6, abs=0.1)
    assert "if one producer writes them" in said.effect
    with_id = advice(batches=[batch(at, producer_id=7) for at in range(0, 600, 4)])["tiny-batches"]
    assert "if one producer" not in with_id.effect


def test_records_that_come_seldom_need_no_wait() -> None:
    assert not advice(batches=[batch(at) for at in range(0, 60_000, 1000)])


def test_full_few_transactional_and_compacted_batches_yield_no_advice() -> None:
    assert not advice(batches=[batch(at, records=50, span=50) for at in range(100)])
    assert not advice(batches=[batch(at) for at in range(10)])
    assert not advice(batches=[batch(at, is_transactional=True) for at in range(100)], markers=100)
    assert not advice(batches=[batch(at, span=9) for at in range(100)])


# ---- compression


def text(number: int) -> bytes:
    return (b'{"order":%d,"state":"paid","town":"Lima"}' % number) * 5


def test_plain_text_is_to_be_compressed_and_the_figure_is_that_of_its_own_bytes() -> None:
    batches = [batch(0, text(number), codec=0, records=10, span=10) for number in range(50)]
    said = advice(batches=batches)["uncompressed"]
    before = sum(each.stored_bytes for each in batches)
    assert said.estimates["saved_zstd"] == 1 - compressed_bytes([[each] for each in batches], ZSTD) / before


def test_tiny_batches_are_compressed_as_they_would_be_put_together() -> None:
    batches = [batch(number, text(number), codec=0) for number in range(100)]
    said = advice(batches=batches)
    alone = 1 - compressed_bytes([[each] for each in batches], ZSTD) / sum(each.stored_bytes for each in batches)
    assert said["uncompressed"].estimates["saved_zstd"] > alone
    assert "linger.ms" in said["uncompressed"].change


def test_what_does_not_shrink_or_is_compressed_already_is_left_alone() -> None:
    assert not advice(batches=[batch(0, os.urandom(5000), codec=0, records=9, span=9) for _ in range(30)])
    assert not advice(batches=[batch(0, text(1), codec=LZ4, records=9, span=9) for _ in range(30)])


def test_a_topic_that_undoes_compression_is_named() -> None:
    batches = [batch(0, text(number), codec=0, records=10, span=10) for number in range(50)]
    said = advice(batches=batches, settings={"compression.type": "uncompressed"})["uncompressed"]
    assert "compression.type=producer in topic orders" in said.change


def traffic(**fields: Any) -> Traffic:
    return Traffic(1000.0, 161_000.0, 100.0, 1.0, 161_000.0, are_followers_counted=False)._replace(**fields)


FULL = [batch(0, records=10, span=10, stored_bytes=1000) for _ in range(30)]  # 100 bytes a record


@pytest.mark.parametrize(("bytes_in", "is_told"), [(100_000.0, False), (101_000.0, False), (300_000.0, True)])
def test_recompression_shows_in_bytes_that_come_and_are_kept(bytes_in: float, is_told: bool) -> None:
    said = advice(batches=FULL, settings={"compression.type": "zstd"}, traffic=traffic(bytes_in=bytes_in))
    assert ("recompressed" in said) == is_told


def test_recompression_is_not_guessed_without_figures() -> None:
    assert not advice(batches=FULL, settings={"compression.type": "zstd"})
    assert not advice(batches=FULL, settings={"compression.type": "producer"}, traffic=traffic(bytes_in=3e5))
    assert not advice(batches=FULL, settings={"compression.type": "zstd"}, traffic=traffic(records=0.0))


# ---- keys, sizes, fetches


def test_one_key_makes_a_hot_partition() -> None:
    keys: Counter[bytes | None] = Counter({b"hot": 80, b"other": 20})
    said = advice(partitions=4, stored={0: 700, 1: 100, 2: 100, 3: 100}, keys=keys)["hot-partition"]
    assert said.estimates["share"] == pytest.approx(0.28)  # 0.7 * 0.2 stay, 0.56 are spread over four
    assert "'hot'" in said.change


def test_hot_partitions_without_a_hot_key_even_ones_and_few_records_yield_no_advice() -> None:
    many: Counter[bytes | None] = Counter({b"%d" % number: 1 for number in range(100)})
    one: Counter[bytes | None] = Counter({b"hot": 100})
    assert not advice(partitions=4, stored={0: 700, 1: 100, 2: 100, 3: 100}, keys=many)
    assert not advice(partitions=4, stored=dict.fromkeys(range(4), 100), keys=one)
    assert not advice(partitions=4, stored={0: 40}, keys=one)
    assert not advice(partitions=1, stored={0: 1000}, keys=one)


def test_the_last_minute_counts_more_than_the_whole_log() -> None:
    keys: Counter[bytes | None] = Counter({None: 100})
    even = dict.fromkeys(range(4), 10_000)
    said = advice(partitions=4, stored=even, last_minute={0: 500, 1: 0, 2: 0, 3: 0}, keys=keys)
    assert "no key" in said["hot-partition"].observation


def test_a_record_near_the_limit_is_reported() -> None:
    settings = {"max.message.bytes": "1000"}
    said = advice(batches=[batch(stored_bytes=900)], settings=settings)["near-the-limit"]
    assert said.estimates["max_message_bytes"] == 1800
    assert not advice(batches=[batch(stored_bytes=700)], settings=settings)
    assert not advice(batches=[batch(stored_bytes=900, records=9, span=9)], settings=settings)


def test_many_small_fetches_are_reported() -> None:
    said = advice(traffic=traffic(fetches=500.0))["tiny-fetches"]
    assert said.estimates == {"fetches_per_s": 20.0, "times_fewer": 25.0}
    assert "empty-fetches" in advice(traffic=traffic(fetches=500.0, bytes_out=0.0))
    assert not advice(traffic=traffic(fetches=15.0))
    assert not advice(traffic=traffic(fetches=100.0, bytes_out=1e6))


def test_reads_of_followers_are_not_held_against_consumers() -> None:
    theirs = traffic(fetches=500.0, are_followers_counted=True)
    assert not advice(traffic=theirs, replication_factor=3)
    assert advice(traffic=theirs, replication_factor=1)


def test_an_empty_topic_has_figures_and_no_advice() -> None:
    report = advise_topic(facts(stored={0: 0}))
    assert not report.advice
    assert report.figures
