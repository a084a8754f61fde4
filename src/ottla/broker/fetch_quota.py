"""What a consumer's fetch counts for: the quota of its client, and those of the topics that it reads."""

from __future__ import annotations

from typing import Final

from ottla.base.file_range import FileRange
from ottla.base.topic_settings import TopicQuota
from ottla.broker.context import Context
from ottla.broker.fetch_data import NO_RECORDS
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.replication.partition import Partition
from ottla.storage.batch_counts import take_records

WITHHELD: Final = -1


class FetchMeasure:
    """One fetch. Records are counted if some quota is about them: those beyond it are left for the next one."""

    def __init__(self, context: Context, is_client_measured: bool) -> None:
        """`is_client_measured`: some rule may be about this client; topics may have their own in any case."""
        self._context = context
        self._quotas = context.broker.quotas
        self._is_client_measured = is_client_measured
        self._messages_left = self._quotas.fetch_messages_left(context) if is_client_measured else None
        self._messages = 0
        self._bytes = 0
        self._withheld_ms = 0

    def bytes_left(self, partition: Partition, quota: TopicQuota, bytes_left: int) -> int:
        """How much may be read of a partition of a topic that has a quota; WITHHELD: nothing now."""
        size, _, wait_ms = self._quotas.topic_left(self._context, partition, quota)
        if wait_ms > 0:
            self._withheld_ms = max(self._withheld_ms, wait_ms)
            return WITHHELD
        return min(bytes_left, size)

    def tell(self, partition: Partition, data: PartitionData) -> None:
        """These records are about to be sent. They are in memory by now."""
        file_range = data.records
        if not isinstance(file_range, FileRange):
            return
        quota = partition.log.settings.quota
        left = self._messages_left
        if quota is not None:
            of_topic = self._quotas.topic_left(self._context, partition, quota)[1]
            left = min((each for each in (left, of_topic) if each is not None), default=None)
        messages = 0
        if left is not None:
            if self._messages and left <= self._messages:
                file_range.release()
                data.records = NO_RECORDS
                return
            messages = take_records(file_range, left - self._messages)
        self._messages += messages
        self._bytes += file_range.length
        if quota is not None:
            self._quotas.note_read(partition, quota, file_range.length, messages)

    def settle(self, response: FetchResponse) -> None:
        """All is told: the client's share is charged, and who got nothing because of a topic is told for how long."""
        responder = self._context.responder
        if self._is_client_measured and self._bytes:
            self._quotas.note_fetch(self._context, self._bytes, self._messages)
        if self._withheld_ms and not self._bytes:
            responder.throttle_ms = max(responder.throttle_ms, self._withheld_ms)
        response.throttle_time_ms = responder.throttle_ms
