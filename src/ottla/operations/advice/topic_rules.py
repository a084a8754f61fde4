"""What to change about a topic and its producers and consumers. Pure; each rule is one function.

A rule is silent where its figure cannot be had or allows of another reading: no advice is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.base.counting import counted
from ottla.operations.advice.batching import best_linger, compressed_bytes
from ottla.operations.advice.report import Advice, Figure, Report, number
from ottla.operations.advice.topic_facts import SampledBatch, TopicFacts
from ottla.operations.sizes import size_text
from ottla.protocol.compression import CODEC_NAMES, LZ4, NONE, ZSTD

BATCHES_MIN = 20  # fewer show nothing
FEW_RECORDS = 5.0  # a batch
TIMES_MIN = 2.0  # fewer batches: less is not worth a wait
SAVED_MIN = 0.2  # of the bytes
RECOMPRESSED_MIN = 0.03  # difference between what came in and what is stored
KEY_SHARE_MIN = 0.3
NEAR_SHARE = 0.8  # of max.message.bytes
FETCHES_MIN = 20.0  # a second
FETCH_BYTES_FEW = 4096
WAIT_MS = 100  # that a consumer may wait for more
LONG_WAIT_MS = 500  # the default of clients
KEY_TEXT_MAX = 40
OWN_CODECS = frozenset(CODEC_NAMES) - {"none"}


def advise_topic(facts: TopicFacts) -> Report:
    advice = [each for rule in RULES for each in rule(facts)]
    return Report(f"topic {facts.name}", figures(facts), advice, facts.unknown)


def check_batches(facts: TopicFacts) -> Iterator[Advice]:
    """Transactions end batches by themselves; a cleaner takes records out of them: neither says anything here."""
    batches = plain_batches(facts)
    if len(batches) < BATCHES_MIN:
        return
    records = sum(batch.records for batch in batches)
    now = records / len(batches)
    if now >= FEW_RECORDS:
        return
    best = best_linger(batches)
    times = best.records_per_batch / now
    if times < TIMES_MIN:
        return  # records come too seldom
    before = sum(batch.stored_bytes for batch in batches) / records
    after = compressed_bytes(best.groups) / records
    one = any(batch.producer_id < 0 for batch in batches)
    yield Advice(
        "tiny-batches",
        f"a batch holds {number(now)} records ({len(batches):,} batches of {counted(len(facts.sampled), 'partition')})",
        f"linger.ms={best.linger_ms} in the producers, and do not wait for each record (flush(), send().get()) before "
        "the next",
        f"{number(best.records_per_batch)} records a batch: {number(times)} times fewer appends and requests, "
        f"{number(after)} instead of {number(before)} bytes a record on wire and disk; a record waits up to "
        f"{best.linger_ms} ms longer" + (" (if one producer writes them)" if one else ""),
        {
            "linger_ms": best.linger_ms,
            "records_per_batch": best.records_per_batch,
            "times_fewer": times,
            "bytes_per_record": after,
        },
    )


def check_compression(facts: TopicFacts) -> Iterator[Advice]:
    """Estimated from the records themselves, in batches as they are, or as they would be with the advice above."""
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
        f"records are not compressed: {size_text(before)} were looked at",
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
    spent = f"at least {number(cost)} µs less of a broker's CPU a record, " if cost is not None else ""
    yield Advice(
        "recompressed",
        f"brokers compress anew: a record comes with {number(came)} bytes and is kept with {number(kept)} "
        f"(compression.type={codec} in the topic)",
        f"compression.type={name} in the producers, as in the topic; or compression.type=producer in the topic",
        f"{spent}{number(traffic.records)} times a second; on the wire {number(kept)} instead of {number(came)} bytes "
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
        return  # many keys: chance, or a partitioner of one's own
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
        f"the busiest partition gets {after:.0%} instead of {share:.0%}: its reader has {number(share / after)} times "
        "less to do",
        {"share": after, "times_less": share / after},
    )


def check_largest(facts: TopicFacts) -> Iterator[Advice]:
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
        f"a record takes {share:.0%} of max.message.bytes ({largest.stored_bytes:,} of {int(limit):,} bytes): a record "
        "that is a little larger is refused (MESSAGE_TOO_LARGE)",
        f"ottla configs set topic {facts.name} max.message.bytes={wanted}, and message.max.bytes (Java: "
        f"max.request.size) of the producers{packed if saved >= SAVED_MIN else ''}",
        f"records up to {size_text(wanted)} are taken",
        {"max_message_bytes": wanted, "saved_zstd": saved},
    )


def check_fetches(facts: TopicFacts) -> Iterator[Advice]:
    """Kafka counts a read for each partition of a fetch, and another when a fetch that had to wait is answered."""
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
    seen = f"{number(traffic.fetches)} reads of a partition a second bring {number(bytes_each)} bytes each"
    if traffic.bytes_out < 1:
        after = 2 * 1000 / LONG_WAIT_MS * facts.partitions
        if traffic.fetches < TIMES_MIN * after:
            return
        yield Advice(
            "empty-fetches",
            f"{number(traffic.fetches)} reads of a partition a second bring nothing",
            f"fetch.wait.max.ms={LONG_WAIT_MS} (Java: fetch.max.wait.ms) in the consumers",
            f"about {number(after)} reads a second for each consumer; a record ends the wait at once",
            {"fetches_per_s": after},
        )
        return
    readers = max(1.0, round(traffic.bytes_out / traffic.bytes_in)) if traffic.bytes_in else 1.0
    after = 2 * 1000 / WAIT_MS * readers * facts.partitions
    if traffic.fetches < TIMES_MIN * after:
        return
    yield Advice(
        "tiny-fetches",
        seen,
        f"fetch.min.bytes=100000 and fetch.wait.max.ms={WAIT_MS} (Java: fetch.max.wait.ms) in the consumers",
        f"at most {number(after)} reads a second, {number(traffic.fetches / after)} times fewer; a record may wait "
        f"{WAIT_MS} ms longer",
        {"fetches_per_s": after, "times_fewer": traffic.fetches / after},
    )


RULES: tuple[Callable[[TopicFacts], Iterator[Advice]], ...] = (
    check_batches,
    check_compression,
    check_recompression,
    check_skew,
    check_largest,
    check_fetches,
)


def figures(facts: TopicFacts) -> list[Figure]:
    """All that was looked at."""
    shares, traffic = facts.shares, facts.traffic
    found = [
        Figure("partitions", f"{facts.partitions:,}, {counted(facts.replication_factor, 'replica')}"),
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
            Figure("sample", f"{count:,} batches, {records:,} records of {counted(len(facts.sampled), 'partition')}"),
            Figure("records a batch", number(records / count)),
            Figure("bytes a record", number(facts.stored_bytes / records)),
            Figure("compression", codecs),
            Figure(
                "largest batch", f"{largest:,} bytes; max.message.bytes={facts.settings.get('max.message.bytes', '?')}"
            ),
        ]
        if facts.markers:
            found.append(Figure("records a transaction", number(records / facts.markers)))
    if facts.settings:
        found.append(Figure("compression.type", facts.settings.get("compression.type", "?")))
    if traffic is not None:
        found += [
            Figure("records in", f"{number(traffic.records)}/s in {number(traffic.appends)} batches/s"),
            Figure("partition reads", f"{number(traffic.fetches)}/s, {number(traffic.bytes_out)} bytes/s"),
        ]
    return found


def plain_batches(facts: TopicFacts) -> list[SampledBatch]:
    return [batch for batch in facts.batches if not batch.is_transactional and batch.records == batch.span]


def key_text(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= KEY_TEXT_MAX else f"{text[:KEY_TEXT_MAX]}…")
