"""Plans the offsets and ranges of a query on the driver, from options and cluster state. Uses no Spark.

Rules, as in Spark's kafka source:
1. A stream starts at startingOffsets; partitions that appear later are read from their beginning.
2. Unavailable offsets, missing partitions and recreated topics are data loss (data_loss.py). A recreated topic may be
   longer than the old one, so only topic ids detect it.
3. A start beyond the end is an error; with failOnDataLoss=false it is a warning.
4. With Trigger.AvailableNow the end is fixed once, and later records are ignored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ottla.base.names import TopicPartition
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.data_loss import SourceError, report_loss
from ottla.pipelines.source.offset_ranges import count_offsets, interleave_partitions, limit_offsets, split_ranges
from ottla.pipelines.source.options import EARLIEST, LATEST, Bound, Offsets, OptionError, Options

STALE_PAUSE_S = 0.2  # a new leader may briefly report a smaller end offset

logger = logging.getLogger(__name__)


class Planner:
    """Plans for one query; keeps only the state that a limit or a fixed end needs."""

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.seconds = seconds
        self.sleep = sleep
        self.latest_offsets: Offsets = {}  # log end offsets of the last query to the cluster
        self.available_now_end: Offsets | None = None
        self.last_trigger_s: float | None = None  # None before the first batch, which does not wait
        self.initial_offsets: Offsets | None = None
        self.is_before_first_batch = False  # a new query, or one that stopped during its first batch
        self.topic_ids = TopicIds(options.loss_folder)

    def batch_ranges(self) -> list[OffsetRange]:
        """The ranges that a batch query reads."""
        partitions = self._subscribed_partitions()
        start = self._resolve(self.options.starting, partitions, "startingOffsets")
        end = self._clamp_to_log_end(self._resolve(self.options.ending, partitions, "endingOffsets", is_end=True))
        self._check_start(start, end, self.options.ending)
        if self.options.starting.offsets:  # a repeated read: the folder holds the topic ids of the first one
            anew = [
                each for each in partitions if self.topic_ids.is_different_topic(each.topic, self.cluster.topic_ids())
            ]
            for each in anew:
                report_loss(self.options, f"{each} cannot be read again: its topic was deleted and recreated")
            partitions = [each for each in partitions if each not in anew]
        return interleave_partitions(self._split(OffsetRange(*each, start[each], end[each]) for each in partitions))

    def initial(self) -> Offsets:
        """The start of a new stream. Spark calls this again before the first batch, whose end it already has."""
        if self.initial_offsets is not None:
            return self.initial_offsets
        partitions = self._subscribed_partitions()
        self.topic_ids.start_new_stream(self.cluster.topic_ids())
        start = self._resolve(self.options.starting, partitions, "startingOffsets")
        named = [each for each, offset in self.options.starting.offsets.items() if offset >= 0]
        self._check_start(start, self.cluster.end_offsets(named), Bound(all_partitions=LATEST))
        self.is_before_first_batch = True
        self.initial_offsets = start
        return start

    def fix_end(self) -> None:
        """Ignore records that arrive after this call."""
        self.available_now_end = self.cluster.end_offsets(self._refresh_partitions())

    def next_end(self, start: Offsets, offsets_max: int | None, offsets_min: int | None) -> Offsets:
        """The end of the next batch, or `start` if it should not run yet. The previous batch is complete."""
        self.topic_ids.complete_batch()
        self.is_before_first_batch = False
        end = self._latest(start)
        self._check_recreated_topics(start)
        self.latest_offsets = end
        end = self._without_recreated_topics(start, end)
        if self.available_now_end is not None:
            fixed = self.available_now_end
            end = {each: min(end[each], fixed[each]) for each in end if each in fixed}
            # offsets that the checkpoint has read beyond the fixed end stay read
            end = {
                each: max(offset, min(start.get(each, offset), self.latest_offsets[each]))
                for each, offset in end.items()
            }
        elif offsets_min is not None and self._should_wait(start, end, offsets_min):
            return start
        self.last_trigger_s = self.seconds()
        if offsets_max is None:
            return end
        return limit_offsets(start | self._earliest_of_new(start, end), end, offsets_max)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges of the tasks of one batch; reports data loss."""
        if not self.topic_ids.has_seen:  # a batch that an earlier run planned
            self._refresh_partitions()
        if self.is_before_first_batch:
            start = self._first_batch_start(start, end)
        known = start | self._earliest_of_new(start, end)
        left_out = sorted(start.keys() - end.keys())
        gone = [each for each in left_out if not self.topic_ids.is_recreated(each.topic)]
        for each in sorted({*left_out} - {*gone}):  # the next batch starts with them
            if start[each] > 0:
                report_loss(self.options, _recreated_topic_text(each, start[each]))
        if gone:
            words = ", ".join(f"{each} from offset {start[each]} on" for each in gone)
            report_loss(self.options, f"partitions are gone: {words}")
        shrunk = sorted(each for each in end if end[each] < known[each])
        for each in shrunk:
            report_loss(
                self.options,
                f"{each} was read up to offset {known[each]}, but now it ends at {end[each]}: "
                "its topic was deleted and recreated, or its log was truncated",
            )
        anew = sorted(each for each in end if self.topic_ids.is_recreated(each.topic) and each in start)
        for each in anew:
            if each not in shrunk and known[each] > 0:
                report_loss(self.options, _recreated_topic_text(each, known[each]))
        known |= self.cluster.beginning_offsets({*shrunk, *anew})
        return self._split(OffsetRange(*each, known[each], offset) for each, offset in sorted(end.items()))

    def _first_batch_start(self, start: Offsets, end: Offsets) -> Offsets:
        """The start of a first batch that was interrupted. Spark has stored its end but asks for the start again.
        Partitions created since then belong to the next batch. `latest` has moved, so using it would skip records."""
        starting = self.options.starting
        if starting.all_partitions == LATEST or LATEST in starting.offsets.values():
            raise SourceError(
                "the query was interrupted in its first batch, whose start (startingOffsets latest) is not known "
                "any more: use a new checkpoint, with startingOffsets or startingTimestamp from before"
            )
        return {each: offset for each, offset in start.items() if each in end}

    def _check_recreated_topics(self, start: Offsets) -> None:
        """A recreated topic may end exactly where the old one was read: without this check nothing would be planned or
        reported."""
        if not self.options.fails_on_data_loss:
            return
        for each in sorted(start):
            if start[each] > 0 and self.topic_ids.is_different_topic(each.topic, self.topic_ids.seen):
                report_loss(self.options, _recreated_topic_text(each, start[each]))

    def _without_recreated_topics(self, start: Offsets, end: Offsets) -> Offsets:
        """Leave recreated topics out of one batch, so they count as new in the next and are read from the beginning,
        even if they end at the same offset."""
        anew = {each.topic for each in start if self.topic_ids.is_different_topic(each.topic, self.topic_ids.seen)}
        return {each: offset for each, offset in end.items() if each.topic not in anew}

    def _split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return split_ranges(ranges, self.options.partitions_min, self.options.records_per_partition_max)

    def _subscribed_partitions(self) -> list[TopicPartition]:
        """The subscribed partitions. A topic that does not exist at the start is an error."""
        wanted = self.options.subscription
        partitions = self.cluster.partitions(wanted)
        topics = {each.topic for each in partitions}
        if missing := [topic for topic in wanted.topics if topic not in topics]:
            raise SourceError(f"the topic {', '.join(missing)} does not exist in {self.options.bootstrap}")
        if missing_partitions := [str(each) for each in wanted.partitions if each not in partitions]:
            raise SourceError(f"the partition {', '.join(missing_partitions)} does not exist")
        if not partitions:
            logger.warning("there are no %s in %s", wanted, self.options.bootstrap)
        return partitions

    def _refresh_partitions(self) -> list[TopicPartition]:
        partitions = self.cluster.partitions(self.options.subscription)
        self.topic_ids.update_seen(self.cluster.topic_ids())
        return partitions

    def _latest(self, start: Offsets) -> Offsets:
        """The end offsets of all partitions. An end before the start is queried again."""
        partitions = self._refresh_partitions()
        found = self.cluster.end_offsets(partitions)
        for _ in range(self.options.retries):
            if all(offset >= start.get(each, 0) for each, offset in found.items()):
                break
            self.sleep(STALE_PAUSE_S)
            found |= self.cluster.end_offsets(partitions)
        return found

    def _earliest_of_new(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
        new = [each for each in end if each not in start]
        earliest = self.cluster.beginning_offsets(new) if new else {}
        for each, offset in earliest.items():
            if offset > 0:
                report_loss(
                    self.options,
                    f"the new partition {each} begins at offset {offset}, not at 0: records are missing",
                )
        return {each: earliest.get(each, end[each]) for each in new}

    def _should_wait(self, start: Offsets, end: Offsets, offsets_min: int) -> bool:
        if self.last_trigger_s is None or count_offsets(start, end) >= offsets_min:
            return False
        return self.seconds() - self.last_trigger_s < self.options.trigger_delay_ms_max / 1000

    def _resolve(self, bound: Bound, partitions: list[TopicPartition], name: str, is_end: bool = False) -> Offsets:
        if bound.time_ms is not None:
            return self._offsets_for_times(dict.fromkeys(partitions, bound.time_ms), is_end)
        if bound.times_ms:
            _check_named(bound.times_ms, partitions, f"{name}ByTimestamp", "")
            return self._offsets_for_times(bound.times_ms, is_end)
        wanted = bound.offsets
        if bound.all_partitions is None:
            _check_named(wanted, partitions, name, " (-1 is latest, -2 is earliest)")
        else:
            wanted = dict.fromkeys(partitions, bound.all_partitions)
        found = {each: offset for each, offset in wanted.items() if offset >= 0}
        found |= self.cluster.beginning_offsets(each for each, offset in wanted.items() if offset == EARLIEST)
        found |= self.cluster.end_offsets(each for each, offset in wanted.items() if offset == LATEST)
        return found

    def _clamp_to_log_end(self, end: Offsets) -> Offsets:
        """Limit the end to the log end: a task would wait for missing offsets until it times out."""
        newest = self.cluster.end_offsets([each for each in self.options.ending.offsets if each in end])
        for each in sorted(each for each in newest if end[each] > newest[each]):
            sentence = f"{each} should be read up to offset {end[each]}, but its log ends at {newest[each]}"
            if self.options.fails_on_data_loss:
                raise SourceError(f"{sentence}: choose an earlier end, or was the topic recreated?")
            report_loss(self.options, sentence)
        return {each: min(offset, newest.get(each, offset)) for each, offset in end.items()}

    def _check_start(self, start: Offsets, end: Offsets, ending: Bound) -> None:
        """A start beyond the end would silently read nothing."""
        for each in sorted(each for each in end if start[each] > end[each]):
            is_latest = LATEST in (ending.all_partitions, ending.offsets.get(each))
            sentence = (
                f"{each} should be read from offset {start[each]} on, "
                f"but {'its log' if is_latest else 'the requested range'} ends at {end[each]}"
            )
            if self.options.fails_on_data_loss:
                raise SourceError(
                    f"{sentence}: choose an earlier start{', or was the topic recreated?' if is_latest else ''}"
                )
            report_loss(self.options, sentence)

    def _offsets_for_times(self, times_ms: Mapping[TopicPartition, int], is_end: bool) -> Offsets:
        found = self.cluster.offsets_for_times(times_ms)
        without = [each for each, offset in found.items() if offset is None]
        if without and not (is_end or self.options.falls_back_to_latest):
            raise SourceError(
                f"{', '.join(map(str, without))} has no record at or after {times_ms[without[0]]} ms: "
                "choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        return {each: offset for each, offset in found.items() if offset is not None} | self.cluster.end_offsets(
            without
        )

    def __repr__(self) -> str:
        return (
            f"<Planner {self.options.subscription} partitions={len(self.latest_offsets)} "
            f"fixed={self.available_now_end is not None}>"
        )


def _recreated_topic_text(partition: TopicPartition, offset: int) -> str:
    return f"{partition} was read up to offset {offset}, but its topic was deleted and recreated"


def _check_named(named: Offsets, partitions: list[TopicPartition], name: str, hint: str) -> None:
    missing = sorted(set(partitions) - named.keys())
    unknown = sorted(named.keys() - set(partitions))
    if missing:
        raise OptionError(f"{name} must name every partition{hint}; {', '.join(map(str, missing))} is missing")
    if unknown:
        raise OptionError(f"{name} names {', '.join(map(str, unknown))}, which is not subscribed to")


class TopicIds:
    """The topic ids of the planned offsets. A topic of the same name with another id was recreated.

    Offsets do not show that: a stream that had read 10 records would continue at the eleventh record of the new topic.
    Ids are stored in a folder, if there is one, and survive restarts.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder else None
        self._known: dict[str, str] = {}
        self._seen: dict[str, str] = {}  # from the last metadata query
        self._is_planned = False  # a batch that reads the recreated topics from the beginning is in progress

    def start_new_stream(self, found: Mapping[str, str]) -> None:
        """Start a new stream; stored ids of an earlier one are overwritten."""
        self._seen = dict(found)
        for topic, topic_id in found.items():
            self._store_id(topic, topic_id)

    def update_seen(self, found: Mapping[str, str]) -> None:
        self._seen = dict(found)
        for topic, topic_id in found.items():
            if self._known_id(topic) is None:
                self._store_id(topic, topic_id)

    @property
    def has_seen(self) -> bool:
        return bool(self._seen)

    @property
    def seen(self) -> dict[str, str]:
        return self._seen

    def is_recreated(self, topic: str) -> bool:
        """Whether the topic was recreated since it was read; called while a batch is planned."""
        self._is_planned = True
        return self.is_different_topic(topic, self._seen)

    def is_different_topic(self, topic: str, found: Mapping[str, str]) -> bool:
        """Whether a topic of this name exists with another id than the one that was read."""
        known, seen = self._known_id(topic), found.get(topic)
        return known is not None and seen is not None and known != seen

    def complete_batch(self) -> None:
        """Store the new ids only after the batch: a repeated batch must see the same ids."""
        if self._is_planned:
            for topic, topic_id in self._seen.items():
                self._store_id(topic, topic_id)
        self._is_planned = False

    def _known_id(self, topic: str) -> str | None:
        if topic not in self._known and self._folder is not None:
            with suppress(OSError):
                self._known[topic] = self._id_file(topic).read_text(encoding="utf-8")
        return self._known.get(topic)

    def _store_id(self, topic: str, topic_id: str) -> None:
        if self._known_id(topic) == topic_id:
            return
        self._known[topic] = topic_id
        if self._folder is not None:
            with suppress(OSError):  # without the file the id is known to this run only
                self._folder.mkdir(parents=True, exist_ok=True)
                unfinished = self._folder / f"{topic}.new"
                unfinished.write_text(topic_id, encoding="utf-8")
                unfinished.replace(self._id_file(topic))

    def _id_file(self, topic: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{topic}.id"

    def __repr__(self) -> str:
        return f"<TopicIds {len(self._known)} known>"
