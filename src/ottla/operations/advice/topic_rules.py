"""Advice for a topic, its producers and its consumers. Pure; each rule is one function. Facts come from
topic_samples.py.

A rule returns nothing if its measurement is missing or ambiguous: no advice is better than a wrong one.
The effect of linger.ms is simulated with the sampled batches:
1. Batches are merged, never split, which is all that a longer linger can do.
2. A batch takes in what the same producer sends to the same partition until linger.ms after its first record, up to
   batch.size. Producers without an ID cannot be distinguished and count as one.
3. Sizes are measured: batches are compressed here, with the default levels of clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.text import format_count
from ottla.operations.advice.advice import Advice, Figure, Report, number_text
from ottla.operations.sizes import size_text
from ottla.protocol.batches import HEADER_BYTES
from ottla.protocol.compression import CODEC_NAMES, LZ4, NONE, ZSTD, compress

LAST_MINUTE_RECORDS_MIN = 100  # with fewer, the distribution over partitions is taken from the whole log


class SampledBatch(NamedTuple):
    """A record batch of the log, with decompressed records."""

    partition: int
    producer_id: int  # -1: a producer without idempotence
    codec: int
    stored_bytes: int
    records: int
    span: int  # of offsets: larger than `records` after compaction
    first_ms: int
    payload: bytes
    is_transactional: bool = False


class Traffic(NamedTuple):
    """The broker's counters for the topic, summed over partitions, per second."""

    records: float
    bytes_in: float
    appends: float  # batches
    fetches: float  # partition reads by consumers
    bytes_out: float
    are_followers_counted: bool  # among the fetches, as in Apache Kafka


@dataclass
class TopicFacts:
    """All facts about the topic; what could not be read is empty, and `unknown` says why."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[int, int] = field(default_factory=dict)  # number of offsets by partition
    last_minute: Mapping[int, int] = field(default_factory=dict)  # number of offsets of the last minute by partition
    sampled: Sequence[int] = ()  # partitions with sampled records
    batches: Sequence[SampledBatch] = ()
    markers: int = 0  # transaction markers among the batches
    keys: Counter[bytes | None] = field(default_factory=Counter)  # of the busiest partition
    # CPU microseconds per record to compress the sample with the topic's codec, on this machine
    recompression_us: float | None = None
    traffic: Traffic | None = None
    unknown: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    @property
    def stored_bytes(self) -> int:
        return sum(batch.stored_bytes for batch in self.batches)

    @property
    def codecs(self) -> Counter[str]:
        """Stored bytes by codec name."""
        found: Counter[str] = Counter()
        for batch in self.batches:
            found[CODEC_NAMES[batch.codec]] += batch.stored_bytes
        return found

    @property
    def is_recent(self) -> bool:
        return sum(self.last_minute.values()) >= LAST_MINUTE_RECORDS_MIN

    @property
    def shares(self) -> dict[int, float]:
        """Each partition's share of the last minute's records, or of all records if these are too few."""
        counts = self.last_minute if self.is_recent else self.stored
        total = sum(counts.values())
        return {partition: count / total for partition, count in counts.items()} if total else {}


# ---- simulated linger
LINGERS_MS = (5, 20, 100)
BATCH_BYTES = 16_384  # Java's default; librdkafka's is 1,000,000
BATCH_FACTOR_ENOUGH = 5.0  # times fewer batches; beyond that a longer linger is not worth it

Group = list[SampledBatch]


class LingerResult(NamedTuple):
    """The result of one linger.ms: records per batch, and the sampled batches that form each new batch."""

    linger_ms: int
    records_per_batch: float
    groups: Sequence[Group]


def merge_batches(batches: Iterable[SampledBatch], linger_ms: int, batch_bytes: int = BATCH_BYTES) -> list[Group]:
    """The batches, in log order, merged as with this linger."""
    groups: list[Group] = []
    last: dict[tuple[int, int], tuple[Group, int]] = {}  # by producer: its open batch and the size of it
    for batch in batches:
        key = (batch.partition, batch.producer_id)
        group, size = last.get(key, (None, 0))
        size += len(batch.payload)
        if group is None or size > batch_bytes or batch.first_ms > group[0].first_ms + linger_ms:
            group, size = [], len(batch.payload)
            groups.append(group)
        group.append(batch)
        last[key] = (group, size)
    return groups


def best_linger(batches: Sequence[SampledBatch]) -> LingerResult:
    """The shortest linger with enough effect, otherwise the longest."""
    records = sum(batch.records for batch in batches)
    found = LingerResult(0, 0.0, ())
    for linger_ms in LINGERS_MS:
        groups = merge_batches(batches, linger_ms)
        found = LingerResult(linger_ms, records / len(groups), groups)
        if len(batches) / len(groups) >= BATCH_FACTOR_ENOUGH:
            break
    return found


def compressed_bytes(groups: Iterable[Group], codec: int | None = None) -> int:
    """The size of the merged batches; without `codec`, each keeps the codec of its first batch."""
    total = 0
    for group in groups:
        payload = b"".join(batch.payload for batch in group)
        total += HEADER_BYTES + len(compress(group[0].codec if codec is None else codec, payload))
    return total


# ---- rules
BATCHES_MIN = 20  # too few to judge
FEW_RECORDS = 5.0  # per batch
FACTOR_MIN = 2.0  # a smaller factor is not worth the latency
SAVED_MIN = 0.2  # of the bytes
RECOMPRESSED_MIN = 0.03  # difference between received and stored bytes
KEY_SHARE_MIN = 0.3
NEAR_SHARE = 0.8  # of max.message.bytes
FETCHES_MIN = 20.0  # per second
FETCH_BYTES_FEW = 4096
WAIT_MS = 100  # that a consumer may wait for more
LONG_WAIT_MS = 500  # the clients' default
KEY_TEXT_MAX = 40


def advise_topic(facts: TopicFacts) -> Report:
    advice = [each for rule in RULES for each in rule(facts)]
    return Report(f"topic {facts.name}", figures(facts), advice, facts.unknown)


def check_batches(facts: TopicFacts) -> Iterator[Advice]:
    """Transactional and compacted batches are ignored: a commit ends a batch early, and compaction removes records."""
    batches = plain_batches(facts)
    if len(batches) < BATCHES_MIN:
        return
    records = sum(batch.records for batch in batches)
    now = records / len(batches)
    if now >= FEW_RECORDS:
        return
    best = best_linger(batches)
    times = best.records_per_batch / now
    if times < FACTOR_MIN:
        return  # records arrive too rarely
    before = sum(batch.stored_bytes for batch in batches) / records
    after = compressed_bytes(best.groups) / records
    one = any(batch.producer_id < 0 for batch in batches)
    yield Advice(
        "tiny-batches",
        f"a batch holds {number_text(now)} records ({len(batches):,} batches of "
        f"{format_count(len(facts.sampled), 'partition')})",
        f"linger.ms={best.linger_ms} in the producers, and do not wait for each record (flush(), send().get()) before "
        "the next",
        f"{number_text(best.records_per_batch)} records a batch: {number_text(times)} times fewer appends "
        "and requests, "
        f"{number_text(after)} instead of {number_text(before)} bytes a record on wire and disk; a record waits up to "
        f"{best.linger_ms} ms longer" + (" (if one producer writes them)" if one else ""),
        {
            "linger_ms": best.linger_ms,
            "records_per_batch": best.records_per_batch,
            "times_fewer": times,
            "bytes_per_record": after,
        },
    )


def check_compression(facts: TopicFacts) -> Iterator[Advice]:
    """Estimated by compressing the sampled records, in their batches or in those of the linger advice."""
    plain = [batch for batch in facts.batches if batch.codec == NONE]
    before = sum(batch.stored_bytes for batch in plain)
    if (len(plain) < BATCHES_MIN and before < BATCHES_MIN * 1024) or before < 0.5 * facts.stored_bytes:
        return
    tiny = next(check_batches(facts), None)
    groups = best_linger(plain).groups if tiny is not None else [[batch] for batch in plain]
    saved = {codec: 1 - compressed_bytes(groups, codec) / before for codec in (ZSTD, LZ4)}
    if saved[ZSTD] < SAVED_MIN:
        return
    is_undone = facts.settings.get("compression.type") == "uncompressed"
    undone = f", and compression.type=producer in topic {facts.name}, which undoes it now" if is_undone else ""
    together = f" (together with linger.ms={tiny.estimates['linger_ms']:.0f})" if tiny is not None else ""
    yield Advice(
        "uncompressed",
        f"records are not compressed: a sample of {size_text(before)}",
        f"compression.type=zstd in the producers{together}{undone}",
        f"{saved[ZSTD]:.0%} fewer bytes on wire and disk (lz4: {saved[LZ4]:.0%}, for less CPU)",
        {"saved_zstd": saved[ZSTD], "saved_lz4": saved[LZ4]},
    )


def check_recompression(facts: TopicFacts) -> Iterator[Advice]:
    codec = facts.settings.get("compression.type", "producer")
    traffic = facts.traffic
    if codec == "producer" or traffic is None or traffic.records <= 0 or not facts.records:
        return
    came = traffic.bytes_in / traffic.records
    kept = facts.stored_bytes / facts.records
    if abs(came - kept) < RECOMPRESSED_MIN * kept:
        return
    name = "none" if codec == "uncompressed" else codec
    cost = facts.recompression_us
    spent = f"at least {number_text(cost)} µs less of a broker's CPU a record, " if cost is not None else ""
    yield Advice(
        "recompressed",
        f"brokers recompress: a record arrives with {number_text(came)} bytes and is stored with {number_text(kept)} "
        f"(compression.type={codec} in the topic)",
        f"compression.type={name} in the producers, as in the topic; or compression.type=producer in the topic",
        f"{spent}{number_text(traffic.records)} times a second; on the wire {number_text(kept)} instead "
        f"of {number_text(came)} bytes "
        "a record",
        {"broker_us_per_record": cost or 0.0, "bytes_per_record": kept},
    )


def check_skew(facts: TopicFacts) -> Iterator[Advice]:
    shares, count = facts.shares, facts.partitions
    if count < 2 or not shares or sum(facts.stored.values()) < 100:
        return
    hot = max(shares, key=lambda partition: shares[partition])
    share = shares[hot]
    if share < min(2 / count, (1 + 1 / count) / 2) or not facts.keys:
        return
    key, times = facts.keys.most_common(1)[0]
    of_key = times / facts.keys.total()
    if of_key < KEY_SHARE_MIN:
        return  # many keys: chance, or a custom partitioner
    spread = share * of_key / count
    after = max(each - (share * of_key if place == hot else 0.0) + spread for place, each in shares.items())
    when = "the last minute" if facts.is_recent else "the log"
    if key is None:
        change = "do not name the partition, and let the client choose: the records have no keys"
    else:
        change = f"a finer key for these records (such as {key_text(key)} and a second field), if their order allows it"
    has = "have no key" if key is None else f"have the key {key_text(key)}"
    yield Advice(
        "hot-partition",
        f"partition {hot} gets {share:.0%} of the records of {when}, where {1 / count:.0%} were even: {of_key:.0%} of "
        f"its records {has}",
        change,
        f"the busiest partition gets {after:.0%} instead of {share:.0%}: its reader has "
        f"{number_text(share / after)} times "
        "less to do",
        {"share": after, "times_less": share / after},
    )


def check_record_size(facts: TopicFacts) -> Iterator[Advice]:
    limit = facts.settings.get("max.message.bytes", "")
    alone = [batch for batch in facts.batches if batch.records == 1]
    if not limit.isdecimal() or not alone:
        return
    largest = max(alone, key=lambda batch: batch.stored_bytes)
    share = largest.stored_bytes / int(limit)
    if share < NEAR_SHARE:
        return
    wanted = 2 * largest.stored_bytes
    saved = 1 - compressed_bytes([[largest]], ZSTD) / largest.stored_bytes
    packed = f"; or compression.type=zstd in the producers: it has {saved:.0%} fewer bytes then"
    yield Advice(
        "near-the-limit",
        f"a record takes {share:.0%} of max.message.bytes ({largest.stored_bytes:,} of {int(limit):,} bytes): a "
        "slightly larger record is refused (MESSAGE_TOO_LARGE)",
        f"ottla configs set topic {facts.name} max.message.bytes={wanted}, and message.max.bytes (Java: "
        f"max.request.size) of the producers{packed if saved >= SAVED_MIN else ''}",
        f"records up to {size_text(wanted)} are accepted",
        {"max_message_bytes": wanted, "saved_zstd": saved},
    )


def check_fetches(facts: TopicFacts) -> Iterator[Advice]:
    """Kafka counts a read for each partition of a fetch, and another one when a delayed fetch completes."""
    traffic = facts.traffic
    if (
        traffic is None
        or traffic.fetches < FETCHES_MIN
        or (traffic.are_followers_counted and facts.replication_factor > 1)
    ):
        return
    bytes_each = traffic.bytes_out / traffic.fetches
    if bytes_each >= FETCH_BYTES_FEW:
        return
    seen = f"{number_text(traffic.fetches)} reads of a partition a second return {number_text(bytes_each)} bytes each"
    if traffic.bytes_out < 1:
        after = 2 * 1000 / LONG_WAIT_MS * facts.partitions
        if traffic.fetches < FACTOR_MIN * after:
            return
        yield Advice(
            "empty-fetches",
            f"{number_text(traffic.fetches)} reads of a partition a second return nothing",
            f"fetch.wait.max.ms={LONG_WAIT_MS} (Java: fetch.max.wait.ms) in the consumers",
            f"about {number_text(after)} reads a second for each consumer; a record ends the wait at once",
            {"fetches_per_s": after},
        )
        return
    readers = max(1.0, round(traffic.bytes_out / traffic.bytes_in)) if traffic.bytes_in else 1.0
    after = 2 * 1000 / WAIT_MS * readers * facts.partitions
    if traffic.fetches < FACTOR_MIN * after:
        return
    yield Advice(
        "tiny-fetches",
        seen,
        f"fetch.min.bytes=100000 and fetch.wait.max.ms={WAIT_MS} (Java: fetch.max.wait.ms) in the consumers",
        f"at most {number_text(after)} reads a second, {number_text(traffic.fetches / after)} times "
        "fewer; a record may wait "
        f"{WAIT_MS} ms longer",
        {"fetches_per_s": after, "times_fewer": traffic.fetches / after},
    )


RULES: tuple[Callable[[TopicFacts], Iterator[Advice]], ...] = (
    check_batches,
    check_compression,
    check_recompression,
    check_skew,
    check_record_size,
    check_fetches,
)


def figures(facts: TopicFacts) -> list[Figure]:
    """All measured values."""
    shares, traffic = facts.shares, facts.traffic
    found = [
        Figure("partitions", f"{facts.partitions:,}, {format_count(facts.replication_factor, 'replica')}"),
        Figure("offsets in the log", f"{sum(facts.stored.values()):,}"),
        Figure("of the last minute", f"{sum(facts.last_minute.values()):,}"),
    ]
    if shares:
        hot = max(shares, key=lambda partition: shares[partition])
        found.append(Figure("busiest partition", f"{hot}, with {shares[hot]:.1%}"))
    if facts.batches:
        count, records = len(facts.batches), facts.records
        codecs = ", ".join(f"{name} {size / facts.stored_bytes:.0%}" for name, size in facts.codecs.most_common())
        largest = max(batch.stored_bytes for batch in facts.batches)
        found += [
            Figure(
                "sample", f"{count:,} batches, {records:,} records of {format_count(len(facts.sampled), 'partition')}"
            ),
            Figure("records a batch", number_text(records / count)),
            Figure("bytes a record", number_text(facts.stored_bytes / records)),
            Figure("compression", codecs),
            Figure(
                "largest batch", f"{largest:,} bytes; max.message.bytes={facts.settings.get('max.message.bytes', '?')}"
            ),
        ]
        if facts.markers:
            found.append(Figure("records a transaction", number_text(records / facts.markers)))
    if facts.settings:
        found.append(Figure("compression.type", facts.settings.get("compression.type", "?")))
    if traffic is not None:
        found += [
            Figure("records in", f"{number_text(traffic.records)}/s in {number_text(traffic.appends)} batches/s"),
            Figure("partition reads", f"{number_text(traffic.fetches)}/s, {number_text(traffic.bytes_out)} bytes/s"),
        ]
    return found


def plain_batches(facts: TopicFacts) -> list[SampledBatch]:
    return [batch for batch in facts.batches if not batch.is_transactional and batch.records == batch.span]


def key_text(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= KEY_TEXT_MAX else f"{text[:KEY_TEXT_MAX]}…")
