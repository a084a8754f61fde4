"""Resolution of the regular expressions that members of consumer groups subscribe to.

As in Kafka, a heartbeat starts a resolution and does not wait for it: the driver of the machine processes the
Resolution, matches the names of all topics, and returns the result. All expressions of a group are resolved together,
at most once in ten seconds, so the group rebalances once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.coordination.machine import Decision, Record
from ottla.groups.consumer_group import ConsumerGroup, ConsumerGroupMember, TopicCatalog
from ottla.groups.consumer_group_records import group_epoch_record, regex_record

REFRESH_INTERVAL_MS_MIN: Final = 10_000


class RegexResolution(NamedTuple):
    """The regular expressions of a group to resolve, for the topics that the member of the heartbeat may describe."""

    group_id: str
    patterns: frozenset[str]
    catalog: TopicCatalog
    started_ms: int


class RegexResolutions:
    """The resolutions of the groups of one partition."""

    def __init__(self, groups: Mapping[str, ConsumerGroup]) -> None:
        self._groups = groups
        self._running: dict[str, RegexResolution] = {}  # by group
        self._due: list[RegexResolution] = []

    def maybe_start(
        self,
        group: ConsumerGroup,
        previous: ConsumerGroupMember,
        member: ConsumerGroupMember,
        catalog: TopicCatalog,
        refresh_interval_ms: int,
        now_ms: int,
    ) -> None:
        """Start a resolution if one is due after the heartbeat that changed `previous` to `member`."""
        if group.group_id in self._running:
            return
        resolution = resolution_due(group, previous, member, catalog, refresh_interval_ms, now_ms)
        if resolution is not None:
            self._running[group.group_id] = resolution
            self._due.append(resolution)

    def take_due(self) -> list[RegexResolution]:
        """Return the started resolutions. For each the driver calls on_found, once or several times, then on_ended."""
        due, self._due = self._due, []
        return due

    def on_found(self, resolution: RegexResolution, found: Mapping[str, frozenset[str]]) -> Decision:
        group = self._groups.get(resolution.group_id)
        return Decision(resolved_records(group, resolution, found) if group is not None else [])

    def on_ended(self, resolution: RegexResolution, now_ms: int) -> None:
        self._running.pop(resolution.group_id, None)
        group = self._groups.get(resolution.group_id)
        if group is not None and any(each not in group.resolved_regexes for each in resolution.patterns):
            group.regex_failure_ms = now_ms

    def __repr__(self) -> str:
        return f"<RegexResolutions {len(self._running)} resolutions, {len(self._due)} of them to be taken>"


def resolution_due(
    group: ConsumerGroup,
    previous: ConsumerGroupMember,
    member: ConsumerGroupMember,
    catalog: TopicCatalog,
    refresh_interval_ms: int,
    now_ms: int,
) -> RegexResolution | None:
    """Return the resolution that is due after the heartbeat that changed `previous` to `member`, if any.

    The group itself does not reflect the heartbeat yet.
    """
    members = group.regex_subscriber_counts
    was, pattern = previous.subscribed_topic_regex, member.subscribed_topic_regex
    is_new = bool(pattern) and pattern not in members
    if not is_new and not members:
        return None
    last_ms = max(
        (each for each in (group.regexes_resolved_ms, group.regex_failure_ms) if each is not None), default=None
    )
    # A time in the future is that of a clock that was set back since.
    if last_ms is not None and last_ms <= now_ms <= last_ms + REFRESH_INTERVAL_MS_MIN:
        return None
    is_last = was != pattern and members[was] == 1
    is_due = (
        len(members) + is_new - is_last != len(group.resolved_regexes)
        or is_new
        or group.regexes_resolved_generation < catalog.new_topics_generation
        or (last_ms is not None and not last_ms <= now_ms <= last_ms + refresh_interval_ms)
    )
    patterns = {*members, pattern} - {"", was if is_last else ""} if is_due else None
    return RegexResolution(group.group_id, frozenset(patterns), catalog, now_ms) if patterns else None


def resolved_records(
    group: ConsumerGroup, resolution: RegexResolution, found: Mapping[str, frozenset[str]]
) -> list[Record]:
    """Return the records for the topics of some expressions; the group epoch is raised if the topics have changed."""
    records = []
    changes: Counter[str] = Counter()
    for pattern, topics in found.items():
        if pattern in group.regex_subscriber_counts:  # members may have unsubscribed during the resolution
            before = group.resolved_regexes.get(pattern, frozenset())
            changes.update(topics - before)
            changes.subtract(before - topics)
            version = resolution.catalog.generation
            records.append(regex_record(group.group_id, pattern, topics, version, resolution.started_ms))
    metadata_hash = group.metadata_hash_after(changes, resolution.catalog)
    if records and (changes or metadata_hash != group.metadata_hash):
        records.append(group_epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
    return records
