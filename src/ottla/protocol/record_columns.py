"""The records of fetched batches as columns: bounds of keys and values, offsets, timestamps; no object per record.

Compiled with mypyc where possible. The columns are raw little-endian numbers in NumPy's layout, all int64:

    bounds      pairs, start and end of a key or value in the parsed bytes; null has an empty range
    nulls       the rows whose key or value is null
    offsets     as in the log
    timestamps  microseconds since 1970
Headers are separate rows: `header_counts` is the running total of headers, up to and including each record.

The input is not trusted: bounds never decrease and never leave the parsed bytes, or KafkaError is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i64_le

from ottla.protocol.records import malformed, read_varint, skip_headers

if TYPE_CHECKING:
    # mypyc turns this into machine integers; plain Python never evaluates the annotation of a local variable.
    from mypy_extensions import i64

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000  # the maximum that fits in microseconds
SCANNED_BYTES_MAX: Final = 2**31 - 1  # Arrow's binary columns have int32 offsets


class RecordColumns:
    """Columns that grow with every add(); `rows` counts their records."""

    def __init__(
        self, has_keys: bool = True, has_values: bool = True, has_times: bool = True, has_headers: bool = False
    ) -> None:
        self.has_keys = has_keys
        self.has_values = has_values
        self.has_times = has_times
        self.has_headers = has_headers
        self.rows: i64 = 0
        self.headers: i64 = 0
        self.offsets = BytesWriter()
        self.timestamps = BytesWriter()
        self.key_bounds = BytesWriter()
        self.key_nulls = BytesWriter()
        self.value_bounds = BytesWriter()
        self.value_nulls = BytesWriter()
        self.header_counts = BytesWriter()
        self.header_key_bounds = BytesWriter()
        self.header_value_bounds = BytesWriter()
        self.header_value_nulls = BytesWriter()

    def add(  # noqa: C901, PLR0912, PLR0915
        self,
        data: bytes,
        start: i64,
        end: i64,
        count: i64,
        base_offset: i64,
        base_timestamp: i64,
        is_one_time: bool,
        first: i64,
        stop: i64,
    ) -> None:
        """Add the records of one batch, data[start:end], whose offsets are in first … stop - 1.

        With `is_one_time` all have the batch's timestamp (LogAppendTime). Varints of one and two bytes are read inline,
        because a call per field would double the time.
        """
        if end > len(data) or end > SCANNED_BYTES_MAX:
            raise malformed(f"records end at {end} of {len(data)} bytes")
        has_keys = self.has_keys
        has_values = self.has_values
        has_times = self.has_times
        has_headers = self.has_headers
        offsets = self.offsets
        timestamps = self.timestamps
        key_bounds = self.key_bounds
        key_nulls = self.key_nulls
        value_bounds = self.value_bounds
        value_nulls = self.value_nulls
        rows: i64 = self.rows
        position: i64 = start
        index: i64 = 0
        byte: i64
        second: i64
        length: i64
        delta: i64
        timestamp: i64
        base: i64 = _clamp(base_timestamp)
        try:
            while index < count:
                byte = data[position]
                if byte < 0x80:
                    length = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        length = (byte & 0x7F) | (second << 7)
                        length = (length >> 1) ^ -(length & 1)
                        position += 2
                    else:
                        length, position = read_varint(data, position, 32)
                record_end: i64 = position + length
                if length < 0 or record_end > end:
                    raise malformed(f"record {index} claims {length} bytes, {end - position} are left")

                position += 1  # attributes: Kafka ignores them
                byte = data[position]
                if byte < 0x80:
                    timestamp = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        timestamp = (byte & 0x7F) | (second << 7)
                        timestamp = (timestamp >> 1) ^ -(timestamp & 1)
                        position += 2
                    else:
                        timestamp, position = read_varint(data, position, 64)

                byte = data[position]
                if byte < 0x80:
                    delta = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        delta = (byte & 0x7F) | (second << 7)
                        delta = (delta >> 1) ^ -(delta & 1)
                        position += 2
                    else:
                        delta, position = read_varint(data, position, 32)
                delta += base_offset
                is_wanted: bool = first <= delta < stop

                byte = data[position]
                if byte < 0x80:
                    length = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        length = (byte & 0x7F) | (second << 7)
                        length = (length >> 1) ^ -(length & 1)
                        position += 2
                    else:
                        length, position = read_varint(data, position, 32)
                if has_keys and is_wanted:
                    if position > record_end:
                        raise malformed(f"record {index} is longer than it claims")
                    write_i64_le(key_bounds, position)
                    if length < 0:
                        write_i64_le(key_nulls, rows)
                    else:
                        position += length
                        if position > record_end:
                            raise malformed(f"the key of record {index} claims {length} bytes")
                    write_i64_le(key_bounds, position)
                elif length > 0:
                    position += length

                byte = data[position]
                if byte < 0x80:
                    length = (byte >> 1) ^ -(byte & 1)
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        length = (byte & 0x7F) | (second << 7)
                        length = (length >> 1) ^ -(length & 1)
                        position += 2
                    else:
                        length, position = read_varint(data, position, 32)
                if has_values and is_wanted:
                    if position > record_end:
                        raise malformed(f"record {index} is longer than it claims")
                    write_i64_le(value_bounds, position)
                    if length < 0:
                        write_i64_le(value_nulls, rows)
                    else:
                        position += length
                        if position > record_end:
                            raise malformed(f"the value of record {index} claims {length} bytes")
                    write_i64_le(value_bounds, position)
                elif length > 0:
                    position += length

                if has_headers and is_wanted:
                    position = self._add_headers(data, position, record_end)
                elif data[position] == 0:
                    position += 1
                else:
                    position = skip_headers(data, position)
                if position != record_end:
                    raise malformed(f"record {index} claims to end at {record_end} but needs {position}")
                if is_wanted:
                    write_i64_le(offsets, delta)
                    if has_times:
                        timestamp = base if is_one_time else _clamp(base + _clamp(timestamp))
                        write_i64_le(timestamps, timestamp * 1000)
                    rows += 1
                index += 1
        except IndexError:
            raise malformed(f"record {index} of {count} is cut off") from None
        if position != end:
            raise malformed(f"{end - position} bytes follow the last of {count} records")
        self.rows = rows

    def _add_headers(self, data: bytes, position: i64, record_end: i64) -> i64:
        """Add the headers of one record; returns their end."""
        count: i64
        length: i64
        count, position = read_varint(data, position, 32)
        if count < 0:
            raise malformed(f"{count} headers")
        while count > 0:
            length, position = read_varint(data, position, 32)
            if length < 0 or position + length > record_end:
                raise malformed(f"the key of a header claims {length} bytes")
            write_i64_le(self.header_key_bounds, position)
            position += length
            write_i64_le(self.header_key_bounds, position)
            length, position = read_varint(data, position, 32)
            if position > record_end or (length > 0 and position + length > record_end):
                raise malformed(f"the value of a header claims {length} bytes")
            write_i64_le(self.header_value_bounds, position)
            if length < 0:
                write_i64_le(self.header_value_nulls, self.headers)
            else:
                position += length
            write_i64_le(self.header_value_bounds, position)
            self.headers += 1
            count -= 1
        write_i64_le(self.header_counts, self.headers)
        return position

    def __repr__(self) -> str:
        return f"<RecordColumns rows={self.rows} headers={self.headers}>"


def _clamp(timestamp_ms: i64) -> i64:
    """Clamp to the range of microseconds: times outside of it are not real times."""
    if timestamp_ms > TIMESTAMP_MS_MAX:
        return TIMESTAMP_MS_MAX
    if timestamp_ms < -TIMESTAMP_MS_MAX:
        return -TIMESTAMP_MS_MAX
    return timestamp_ms
