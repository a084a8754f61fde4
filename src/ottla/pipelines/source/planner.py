"""The driver's side of a query: turns options and the state of the cluster into offsets and ranges. Knows no Spark.

Rules, as in Spark's kafka source:
1. A stream begins where startingOffsets says; partitions that come later are read from their beginning.
2. An offset that the cluster does not reach any more, a partition that is gone, and a topic that was made anew under
   its old name are losses (losses.py). The new topic may be longer than what was read of the old one: only ids tell.
3. A start beyond the end is an error, and where losses are forgiven a warning.
4. With Trigger.AvailableNow the end is fixed once, and nothing that comes later is looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from ottla.base.names import TopicPartition
from ottla.operations.fetching import Range
from ottla.pipelines.source.bounds import EARLIEST, LATEST, Bound, Offsets, OptionError
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.losses import SourceError, report_loss
from ottla.pipelines.source.offset_ranges import available, in_turn, limit_offsets, split
from ottla.pipelines.source.options import Options
from ottla.pipelines.source.topic_ids import TopicIds

STALE_PAUSE_S = 0.2  # a new leader may know less than the old one for a moment

logger = logging.getLogger(__name__)


class Planner:
    """Plans for one query; remembers only what a limit or a fixed end needs."""

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
        self.newest: Offsets = {}  # the ends of the logs when they were last asked for
        self.fixed_end: Offsets | None = None
        self.last_trigger_s: float | None = None  # none yet: the first batch does not wait
        self.begun: Offsets | None = None
        self.has_only_begun = False  # a new query, or one whose first batch was cut off
        self.topic_ids = TopicIds(options.loss_folder)

    def batch_ranges(self) -> list[Range]:
        """What a batch query reads."""
        partitions = self._existing()
        start = self._resolve(self.options.starting, partitions, "startingOffsets")
        end = self._there(self._resolve(self.options.ending, partitions, "endingOffsets", is_end=True))
        self._check_start(start, end, self.options.ending)
        if self.options.starting.offsets:  # of a topic that was read before: by whom, the folder knows
            anew = [each for each in partitions if self.topic_ids.is_other(each.topic, self.cluster.topic_ids())]
            for each in anew:
                report_loss(self.options, f"{each} cannot be read again: its topic was deleted and made anew")
            partitions = [each for each in partitions if each not in anew]
        return in_turn(self._split(Range(*each, start[each], end[each]) for each in partitions))

    def initial(self) -> Offsets:
        """Where a new stream begins. Spark asks again before it runs the first batch, whose end it has by then."""
        if self.begun is not None:
            return self.begun
        partitions = self._existing()
        self.topic_ids.begin(self.cluster.topic_ids())
        start = self._resolve(self.options.starting, partitions, "startingOffsets")
        named = [each for each, offset in self.options.starting.offsets.items() if offset >= 0]
        self._check_start(start, self.cluster.latest(named), Bound(everywhere=LATEST))
        self.has_only_begun = True
        self.begun = start
        return start

    def fix_end(self) -> None:
        """From now on nothing beyond what is there at this moment is read."""
        self.fixed_end = self.cluster.latest(self._partitions())

    def next_end(self, start: Offsets, offsets_max: int | None, offsets_min: int | None) -> Offsets:
        """Where the next batch ends; `start` itself when it should not be run yet. The batch before is done."""
        self.topic_ids.batch_done()
        self.has_only_begun = False
        end = self._latest(start)
        self._check_anew(start)
        self.newest = end
        end = self._without_anew(start, end)
        if self.fixed_end is not None:
            fixed = self.fixed_end
            end = {each: min(end[each], fixed[each]) for each in end if each in fixed}
            # what the checkpoint has read beyond the fixed end is not unread again
            end = {each: max(offset, min(start.get(each, offset), self.newest[each])) for each, offset in end.items()}
        elif offsets_min is not None and self._should_wait(start, end, offsets_min):
            return start
        self.last_trigger_s = self.seconds()
        if offsets_max is None:
            return end
        return limit_offsets(start | self._earliest_of_new(start, end), end, offsets_max)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What the tasks of one batch read; says what is lost."""
        if not self.topic_ids.has_looked:  # a batch of an earlier run
            self._partitions()
        if self.has_only_begun:
            start = self._begun_again(start, end)
        known = start | self._earliest_of_new(start, end)
        left_out = sorted(start.keys() - end.keys())
        gone = [each for each in left_out if not self.topic_ids.is_anew(each.topic)]
        for each in sorted({*left_out} - {*gone}):  # the next batch begins with them
            if start[each] > 0:
                report_loss(self.options, _anew(each, start[each]))
        if gone:
            words = ", ".join(f"{each} from offset {start[each]} on" for each in gone)
            report_loss(self.options, f"partitions are gone: {words}")
        shrunk = sorted(each for each in end if end[each] < known[each])
        for each in shrunk:
            report_loss(
                self.options,
                f"{each} was read up to offset {known[each]}, but now it ends at {end[each]}: "
                "its topic was deleted and made anew, or its log was cut",
            )
        anew = sorted(each for each in end if self.topic_ids.is_anew(each.topic) and each in start)
        for each in anew:
            if each not in shrunk and known[each] > 0:
                report_loss(self.options, _anew(each, known[each]))
        known |= self.cluster.earliest({*shrunk, *anew})
        return self._split(Range(*each, known[each], offset) for each, offset in sorted(end.items()))

    def _begun_again(self, start: Offsets, end: Offsets) -> Offsets:
        """The first batch of a query that was cut off in it: Spark has kept its end, but asks anew where it began. What
        has come into being since belongs to the next batch; and `latest` is not what it was, so that records would be
        passed over without a word."""
        starting = self.options.starting
        if starting.everywhere == LATEST or LATEST in starting.offsets.values():
            raise SourceError(
                "the query was cut off in its first batch, and where that began (startingOffsets latest) is not known "
                "any more: begin with a new checkpoint, and with startingOffsets or startingTimestamp from before"
            )
        return {each: offset for each, offset in start.items() if each in end}

    def _check_anew(self, start: Offsets) -> None:
        """A new topic may end where reading stopped in the old one: nothing would be planned, and nobody would know."""
        if not self.options.fails_on_data_loss:
            return
        for each in sorted(start):
            if start[each] > 0 and self.topic_ids.is_other(each.topic, self.topic_ids.seen):
                report_loss(self.options, _anew(each, start[each]))

    def _without_anew(self, start: Offsets, end: Offsets) -> Offsets:
        """Topics that were made anew are left out of one batch, and are new in the next: so they are read from their
        beginning, also where they end as the old ones did, and whoever looks at offsets alone sees it."""
        anew = {each.topic for each in start if self.topic_ids.is_other(each.topic, self.topic_ids.seen)}
        return {each: offset for each, offset in end.items() if each.topic not in anew}

    def _split(self, ranges: Iterable[Range]) -> list[Range]:
        return split(ranges, self.options.partitions_min, self.options.records_per_partition_max)

    def _existing(self) -> list[TopicPartition]:
        """The partitions that are subscribed to; a topic that does not exist is an error at the start."""
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

    def _partitions(self) -> list[TopicPartition]:
        partitions = self.cluster.partitions(self.options.subscription)
        self.topic_ids.look(self.cluster.topic_ids())
        return partitions

    def _latest(self, start: Offsets) -> Offsets:
        """The ends of all partitions; one that seems to lie before what was read is asked for again."""
        partitions = self._partitions()
        found = self.cluster.latest(partitions)
        for _ in range(self.options.retries):
            if all(offset >= start.get(each, 0) for each, offset in found.items()):
                break
            self.sleep(STALE_PAUSE_S)
            found |= self.cluster.latest(partitions)
        return found

    def _earliest_of_new(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
        new = [each for each in end if each not in start]
        earliest = self.cluster.earliest(new) if new else {}
        for each, offset in earliest.items():
            if offset > 0:
                report_loss(
                    self.options,
                    f"the new partition {each} begins at offset {offset}, not at 0: records are missing",
                )
        return {each: earliest.get(each, end[each]) for each in new}

    def _should_wait(self, start: Offsets, end: Offsets, offsets_min: int) -> bool:
        if self.last_trigger_s is None or available(start, end) >= offsets_min:
            return False
        return self.seconds() - self.last_trigger_s < self.options.trigger_delay_ms_max / 1000

    def _resolve(self, bound: Bound, partitions: list[TopicPartition], name: str, is_end: bool = False) -> Offsets:
        if bound.time_ms is not None:
            return self._at_times(dict.fromkeys(partitions, bound.time_ms), is_end)
        if bound.times_ms:
            _check_named(bound.times_ms, partitions, f"{name}ByTimestamp", "")
            return self._at_times(bound.times_ms, is_end)
        wanted = bound.offsets
        if bound.everywhere is None:
            _check_named(wanted, partitions, name, " (-1 is latest, -2 is earliest)")
        else:
            wanted = dict.fromkeys(partitions, bound.everywhere)
        found = {each: offset for each, offset in wanted.items() if offset >= 0}
        found |= self.cluster.earliest(each for each, offset in wanted.items() if offset == EARLIEST)
        found |= self.cluster.latest(each for each, offset in wanted.items() if offset == LATEST)
        return found

    def _there(self, end: Offsets) -> Offsets:
        """A task would wait for what lies beyond the end of a log until it gives up."""
        newest = self.cluster.latest([each for each in self.options.ending.offsets if each in end])
        for each in sorted(each for each in newest if end[each] > newest[each]):
            sentence = f"{each} should be read up to offset {end[each]}, but its log ends at {newest[each]}"
            if self.options.fails_on_data_loss:
                raise SourceError(f"{sentence}: end earlier, or was the topic made anew?")
            report_loss(self.options, sentence)
        return {each: min(offset, newest.get(each, offset)) for each, offset in end.items()}

    def _check_start(self, start: Offsets, end: Offsets, ending: Bound) -> None:
        """A start beyond the end would read nothing, and nobody would hear of it."""
        for each in sorted(each for each in end if start[each] > end[each]):
            is_latest = LATEST in (ending.everywhere, ending.offsets.get(each))
            sentence = (
                f"{each} should be read from offset {start[each]} on, "
                f"but {'its log' if is_latest else 'what is wanted'} ends at {end[each]}"
            )
            if self.options.fails_on_data_loss:
                raise SourceError(f"{sentence}: begin earlier{', or was the topic made anew?' if is_latest else ''}")
            report_loss(self.options, sentence)

    def _at_times(self, times_ms: Mapping[TopicPartition, int], is_end: bool) -> Offsets:
        found = self.cluster.at_times(times_ms)
        without = [each for each, offset in found.items() if offset is None]
        if without and not (is_end or self.options.is_latest_without_match):
            raise SourceError(
                f"{', '.join(map(str, without))} has no record at or after {times_ms[without[0]]} ms: "
                "choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        return {each: offset for each, offset in found.items() if offset is not None} | self.cluster.latest(without)

    def __repr__(self) -> str:
        return f"<Planner {self.options.subscription} partitions={len(self.newest)} fixed={self.fixed_end is not None}>"


def _anew(partition: TopicPartition, offset: int) -> str:
    return f"{partition} was read up to offset {offset}, but its topic was deleted and made anew"


def _check_named(named: Offsets, partitions: list[TopicPartition], name: str, hint: str) -> None:
    missing = sorted(set(partitions) - named.keys())
    unknown = sorted(named.keys() - set(partitions))
    if missing:
        raise OptionError(f"{name} must name every partition{hint}; {', '.join(map(str, missing))} is missing")
    if unknown:
        raise OptionError(f"{name} names {', '.join(map(str, unknown))}, which is not among what is read")
