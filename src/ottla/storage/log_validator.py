"""Checks a producer's batch before it is appended, as Kafka's LogValidator does. Compiled with mypyc where possible.

Pure: no clock, no disk. One validator serves one log until the topic's settings change.
LogAppendInfo is the result of an append.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.protocol.batches import BatchHeader, check_produced_batch, read_batch_header, recompress
from ottla.protocol.compression import CODEC_NAMES, GZIP, LZ4, ZSTD, is_slow, library_level
from ottla.storage.errors import RecompressionNeededError

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
PRODUCER_CODEC: Final = -1  # compression.type=producer: batches keep their codec
RECOMPRESSED_HERE_BYTES_MAX: Final = 16 << 10  # with a fast codec: at most a millisecond


class LogAppendInfo:
    """The offsets and the timestamp of an appended batch."""

    __slots__ = ("base_offset", "is_duplicate", "last_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, last_offset: int, log_append_time_ms: int, is_duplicate: bool) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime, except for a duplicate
        self.is_duplicate = is_duplicate

    def __repr__(self) -> str:
        return f"<LogAppendInfo {self.base_offset}-{self.last_offset}{' again' if self.is_duplicate else ''}>"


class LogValidator:
    """The limits that one topic's settings put on a batch."""

    __slots__ = (
        "_codec",
        "_is_compacted",
        "_is_log_append_time",
        "_level",
        "_message_bytes_max",
        "_partition",
        "_recompressed_here_max",
        "_segment_bytes",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
    )

    def __init__(self, partition: str, settings: TopicSettings) -> None:
        self._partition = partition
        self._is_compacted: bool = settings.is_compacted
        self._is_log_append_time: bool = settings.message_timestamp_type == "LogAppendTime"
        self._message_bytes_max: int = settings.max_message_bytes
        self._segment_bytes: int = settings.segment_bytes
        self._timestamp_before_max_ms: int = settings.message_timestamp_before_max_ms
        self._timestamp_after_max_ms: int = settings.message_timestamp_after_max_ms
        self._codec: int = PRODUCER_CODEC
        self._level: int = 0
        self._recompressed_here_max: int = RECOMPRESSED_HERE_BYTES_MAX
        if settings.compression_type == "uncompressed":
            self._codec = 0
        elif settings.compression_type in CODEC_NAMES:
            self._codec = CODEC_NAMES.index(settings.compression_type)
            levels = {
                GZIP: settings.compression_gzip_level,
                LZ4: settings.compression_lz4_level,
                ZSTD: settings.compression_zstd_level,
            }
            self._level = library_level(self._codec, levels.get(self._codec, 0))
            if is_slow(self._codec, self._level):
                self._recompressed_here_max = 0

    def validate(self, records: memoryview, now_ms: int) -> BatchHeader:
        """Return the header of the one batch of a Produce request. Raises KafkaError if the batch is invalid."""
        before_ms = self._timestamp_before_max_ms
        after_ms = self._timestamp_after_max_ms
        return check_produced_batch(
            records,
            is_compacted=self._is_compacted,
            message_bytes_max=self._message_bytes_max,
            partition=self._partition,
            is_log_append_time=self._is_log_append_time,
            timestamp_min=INT64_MIN if before_ms >= NEVER_MS else now_ms - before_ms,
            timestamp_max=INT64_MAX if after_ms >= NEVER_MS else now_ms + after_ms,
        )

    def needs_recompression(self, header: BatchHeader) -> bool:
        """Return whether the topic has another codec. Raises RecompressionNeededError if a worker must apply it."""
        if self._codec < 0 or header.codec == self._codec:
            return False
        if header.batch_bytes > self._recompressed_here_max:
            raise RecompressionNeededError
        return True

    def recompressed(self, records: memoryview | bytes) -> bytearray:
        """Return a batch with the topic's own codec and level; runs in any thread."""
        return recompress(records, self._codec, self._level)

    def check_recompressed(self, records: memoryview) -> BatchHeader:
        header = read_batch_header(records, 0)
        if header.batch_bytes > self._message_bytes_max:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"The batch has {header.batch_bytes} bytes when recompressed")
        return header

    def check_segment_bytes(self, header: BatchHeader) -> None:
        if header.batch_bytes > self._segment_bytes:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {header.batch_bytes} bytes in append to partition {self._partition}, "
                f"which exceeds the maximum configured segment size of {self._segment_bytes}.",
            )

    def __repr__(self) -> str:
        return f"<LogValidator of {self._partition}>"
