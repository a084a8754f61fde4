"""What the console and `ottla search` show of the cluster's own topics is what Kafka's own tool reads there.

The files were written by Apache Kafka, with groups of both protocols and transactions; its tool prints each record, and
our decoder is given the same bytes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.java_tools import JavaTools
from tests.conformance.test_dump_log import FIRST, KAFKAS_OWN

from ottla.operations.messages.message_decoder import Decoder
from ottla.protocol.batches import HEADER_BYTES, read_batch_header, read_records

LINE = re.compile(r"^\| offset: (\d+) .*? key: (\{.*?\})(?: payload: (.*))?$")


def records_of(log: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    data, position, found = log.read_bytes(), 0, {}
    while position + HEADER_BYTES <= len(data):
        header = read_batch_header(data, position)
        if not header.is_control:
            view = memoryview(data)[position : position + header.batch_bytes]
            found |= {record.offset: (record.key, record.value) for record in read_records(view)}
        position += header.batch_bytes
    return found


@pytest.mark.parametrize(
    ("topic", "option", "kinds"),
    [
        ("__consumer_offsets", "--offsets-decoder", {"OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata"}),
        ("__transaction_state", "--transaction-log-decoder", {"TransactionLog"}),
    ],
)
def test_internal_records_are_shown_as_kafkas_tool_shows_them(
    java: JavaTools, topic: str, option: str, kinds: set[str]
) -> None:
    log = KAFKAS_OWN / f"{topic}-0" / f"{FIRST}.log"
    printed = java.run("kafka-dump-log.sh", "--files", str(log), option).out
    theirs = {int(match[1]): match for match in map(LINE.match, printed.splitlines()) if match is not None}
    ours = records_of(log)
    assert set(theirs) == set(ours), "each of them is compared"
    decoder, seen = Decoder(topic), set()
    for offset, (key, value) in ours.items():
        shown_key, shown_value = decoder.decode(key, value)
        kind = shown_key.document.pop("type")
        seen.add(kind)
        assert shown_key.document == json.loads(theirs[offset][2])["data"], (offset, kind)
        payload = theirs[offset][3]
        if value is None:
            assert payload in (None, "<DELETE>"), (offset, kind)
            continue
        assert plain(shown_value.document) == plain(json.loads(payload)["data"]), (offset, kind)
    assert seen >= kinds


def plain(document: Any) -> Any:
    """What members of a classic group sent is spelled out by us, and bytes in Kafka's tool: left out here."""
    if isinstance(document, dict):
        return {name: plain(item) for name, item in document.items() if name not in ("subscription", "assignment")}
    return [plain(item) for item in document] if isinstance(document, list) else document
