"""Malformed frames, headers and bodies: the broker closes that connection, and no other client is affected.

Where the safe answer and Apache Kafka's differ (it reads a negative count as null, and repairs broken UTF-8), both are
allowed; everything else is what Apache Kafka 4.3.1 does.
"""

import contextlib
import random
import struct

import pytest
from tests.conformance.raw import (
    Connection,
    ConnectionClosedError,
    api_versions_v0,
    array,
    assert_others_are_served,
    compact_string,
    i8,
    i16,
    i32,
    request_header,
    string,
    uvarint,
)

pytestmark = pytest.mark.usefixtures("broker_stays_healthy")

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
UNSUPPORTED_VERSION, INVALID_REQUEST, INVALID_TOPIC = 35, 42, 17
CLUSTER_AUTHORIZATION_FAILED = 31
INT32_MAX = 2**31 - 1
REQUEST_BYTES_MAX = 100 << 20
ONE_NAME = string("a")
TLS_HELLO = bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + bytes(range(256)) * 2
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"

RAW_BYTES = {
    "length -1": i32(-1),
    "length -2147483648": i32(-(2**31)),
    "length 0": i32(0),
    "length one above socket.request.max.bytes": i32(REQUEST_BYTES_MAX + 1),
    "length 2147483647": i32(INT32_MAX),
    "random bytes": random.Random(20).randbytes(400),
    "a TLS hello": TLS_HELLO,
    "an HTTP request": HTTP_GET,
}

HEADERS = {
    "api key -1": request_header(-1, 0, 7),
    "api key 93": request_header(93, 0, 7),
    "api key 32767": request_header(32767, 0, 7),
    "Metadata version too high": request_header(METADATA, 14, 7) + b"\0" * 30,
    "Metadata version -1": request_header(METADATA, -1, 7) + b"\0" * 30,
    "Produce version too high": request_header(PRODUCE, 14, 7) + b"\0" * 30,
    "Produce version 2, announced but no longer served": request_header(PRODUCE, 2, 7) + b"\0" * 30,
    "Produce version 0, announced but no longer served": request_header(PRODUCE, 0, 7) + b"\0" * 30,
    "Fetch version too low": request_header(FETCH, 3, 7) + b"\0" * 30,
    "Fetch version too high": request_header(FETCH, 19, 7) + b"\0" * 30,
    "ListOffsets version 0": request_header(LIST_OFFSETS, 0, 7) + b"\0" * 30,
    "CreateTopics version 1": request_header(CREATE_TOPICS, 1, 7) + b"\0" * 30,
    "DeleteTopics version 0": request_header(DELETE_TOPICS, 0, 7) + b"\0" * 30,
    "client id past the end": i16(API_VERSIONS) + i16(0) + i32(7) + i16(100) + b"abc",
    "tag count 2147483647": request_header(METADATA, 9, 7) + uvarint(INT32_MAX) + b"\0" * 20,
    "tag size past the end": request_header(METADATA, 9, 7) + uvarint(1) + uvarint(0) + uvarint(INT32_MAX) + b"\0" * 20,
}


def metadata_v1(body: bytes) -> bytes:
    return request_header(METADATA, 1, 7) + body


def metadata_v9(body: bytes) -> bytes:
    return request_header(METADATA, 9, 7, flexible=True) + body


PRODUCE_V3_START = string(None) + i16(1) + i32(1000) + i32(1) + string("nowhere")

BODIES = {
    "array count 2147483647": metadata_v1(i32(INT32_MAX) + ONE_NAME),
    "array count above the bytes left": metadata_v1(i32(1000) + ONE_NAME),
    "compact count 1000 above the bytes left": metadata_v9(uvarint(1001) + compact_string("a") + b"\0\1\1\1\0"),
    "compact count 2147483647": metadata_v9(uvarint(2**31) + compact_string("a") + b"\0\1\1\1\0"),
    "varint of 6 bytes": metadata_v9(uvarint(2**35) + b"\0" * 20),
    "varint of 10 bytes": metadata_v9(uvarint(2**64 - 1) + b"\0" * 20),
    "varint of 11 bytes": metadata_v9(b"\xff" * 10 + b"\1" + b"\0" * 20),
    "varint cut off": metadata_v9(b"\xff"),
    "body tag count 2147483647": metadata_v9(b"\x01\0\0\0" + uvarint(INT32_MAX)),
    "body tag size past the end": metadata_v9(b"\x01\0\0\0" + uvarint(1) + uvarint(9) + uvarint(1000) + b"x"),
    "string past the end": metadata_v1(i32(1) + i16(100) + b"abc"),
    "string length -2": metadata_v1(i32(1) + i16(-2)),
    "null for a string that must be": metadata_v1(i32(1) + i16(-1)),
    "compact string past the end": metadata_v9(uvarint(2) + uvarint(1000) + b"abc"),
    "body missing": metadata_v9(b""),
    "ApiVersions 3 without a body": request_header(API_VERSIONS, 3, 7, flexible=True),
    "nested array count 2147483647 (CreateTopics configs)": request_header(CREATE_TOPICS, 2, 7)
    + i32(1)
    + string("nowhere")
    + i32(1)
    + i16(1)
    + i32(0)
    + i32(INT32_MAX),
    "nested array count 2147483647 (Produce partitions)": request_header(PRODUCE, 3, 7)
    + PRODUCE_V3_START
    + i32(INT32_MAX),
    "records length 2147483647": request_header(PRODUCE, 3, 7)
    + PRODUCE_V3_START
    + array([i32(0)])
    + i32(INT32_MAX)
    + b"x" * 100,
}

# Null by Apache Kafka's reading; a stricter broker may close.
NEGATIVE_COUNTS = {
    "array count -2": metadata_v1(i32(-2) + ONE_NAME),
    "array count -2147483648": metadata_v1(i32(-(2**31)) + ONE_NAME),
}

# Closing all of them is also what a broker without an inter-broker protocol does; 31 is the answer of one that has it.
INTER_BROKER_APIS = {
    "LeaderAndIsr": (4, 0),
    "StopReplica": (5, 0),
    "UpdateMetadata": (6, 0),
    "ControlledShutdown": (7, 0),
    "WriteTxnMarkers": (27, 1),
    "AlterPartition": (56, 2),
    "FetchSnapshot": (59, 0),
    "BrokerRegistration": (62, 0),
    "AllocateProducerIds": (67, 0),
}


def assert_closed(bootstrap: str, data: bytes) -> None:
    with Connection(bootstrap) as connection:
        connection.send(data)
        assert_others_are_served(bootstrap)
        assert connection.is_closed_by_peer()


def framed(payload: bytes) -> bytes:
    return i32(len(payload)) + payload


@pytest.mark.parametrize("name", RAW_BYTES)
def test_bytes_that_are_no_request_close_the_connection(bootstrap: str, name: str) -> None:
    assert_closed(bootstrap, RAW_BYTES[name])


@pytest.mark.parametrize("size", range(1, 10))
def test_a_frame_too_short_for_a_header_closes_the_connection(bootstrap: str, size: int) -> None:
    assert_closed(bootstrap, framed(request_header(API_VERSIONS, 0, 7)[:size]))


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_cannot_be_served_closes_the_connection(bootstrap: str, name: str) -> None:
    assert_closed(bootstrap, framed(HEADERS[name]))


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_lies_about_sizes_closes_the_connection(bootstrap: str, name: str) -> None:
    assert_closed(bootstrap, framed(BODIES[name]))


@pytest.mark.parametrize("name", NEGATIVE_COUNTS)
def test_a_negative_count_closes_or_reads_as_null(bootstrap: str, name: str) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(NEGATIVE_COUNTS[name])
        assert_others_are_served(bootstrap)
        with contextlib.suppress(ConnectionClosedError):
            assert connection.read_frame()[:4] == i32(7)


def test_bad_utf8_in_a_topic_name_closes_or_is_an_invalid_name(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(metadata_v1(i32(1) + string(b"a\xff\xfeb")))
        assert_others_are_served(bootstrap)
        try:
            frame = connection.read_frame()
        except ConnectionClosedError:
            return
    host_length = struct.unpack(">h", frame[12:14])[0]
    topics = frame[14 + host_length + 4 + 2 + 4 :]  # behind port, null rack and controller id
    assert struct.unpack(">ih", topics[:6]) in {(1, INVALID_TOPIC), (1, INVALID_REQUEST)}


def test_bad_utf8_in_the_client_id_closes_or_is_ignored(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(i16(API_VERSIONS) + i16(0) + i32(7) + string(b"\xff\xfe"))
        assert_others_are_served(bootstrap)
        with contextlib.suppress(ConnectionClosedError):
            assert connection.read_frame()[:6] == i32(7) + i16(0)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_answers_35_in_version_0(bootstrap: str, version: int) -> None:
    with Connection(bootstrap) as connection:
        software = compact_string("a") + compact_string("1") + b"\0"
        body = connection.ask(API_VERSIONS, version, software, flexible_header=version > 0)
        assert body == i16(UNSUPPORTED_VERSION) + i32(1) + i16(API_VERSIONS) + i16(0) + i16(4)
        assert connection.ask(API_VERSIONS, 0, b"")[:2] == i16(0), "the connection goes on"


def test_every_other_api_just_outside_of_its_versions_closes_the_connection(bootstrap: str) -> None:
    for api_key, (lowest, highest) in api_versions_v0(bootstrap).items():
        for version in (lowest - 1, highest + 1):
            for flexible in (False, True):
                if api_key != API_VERSIONS:
                    with Connection(bootstrap) as connection:
                        header = request_header(api_key, version, 7, flexible=flexible)
                        connection.send_frame(header + b"\0" * 30)
                        assert connection.is_closed_by_peer(), f"API {api_key} v{version}"


@pytest.mark.parametrize("name", ["", "a b!", "-a"])
def test_api_versions_with_a_bad_client_software_name_answers_42(bootstrap: str, name: str) -> None:
    with Connection(bootstrap) as connection:
        body = connection.ask(API_VERSIONS, 3, compact_string(name) + compact_string("1") + b"\0", flexible_header=True)
        assert body[:2] == i16(INVALID_REQUEST)
        assert connection.ask(API_VERSIONS, 0, b"")[:2] == i16(0), "the connection goes on"


def test_bytes_behind_a_whole_body_are_ignored(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        assert connection.ask(API_VERSIONS, 0, b"abc")[:2] == i16(0)


def test_unknown_tagged_fields_are_skipped(bootstrap: str) -> None:
    tag = uvarint(1) + uvarint(77) + uvarint(3) + b"abc"
    with Connection(bootstrap) as connection:
        connection.send_frame(request_header(METADATA, 9, 7) + tag + b"\x01\0\0\0" + tag)
        assert connection.read_frame()[:4] == i32(7)


@pytest.mark.parametrize("name", INTER_BROKER_APIS)
def test_inter_broker_apis_are_closed_or_refused(bootstrap: str, name: str) -> None:
    api_key, version = INTER_BROKER_APIS[name]
    with Connection(bootstrap) as connection:
        connection.send_frame(request_header(api_key, version, 7, flexible=api_key > 7) + i8(0) * 40)
        assert_others_are_served(bootstrap)
        with contextlib.suppress(ConnectionClosedError):
            assert i16(CLUSTER_AUTHORIZATION_FAILED) in connection.read_frame()


def test_requests_cut_anywhere_close_the_connection_or_are_answered(bootstrap: str) -> None:
    """Every prefix of a right request, framed with its own length: never a hang, never a dead broker."""
    whole = metadata_v9(uvarint(2) + compact_string("nowhere") + b"\0" + b"\0\0\0" + b"\0")
    for size in range(8, len(whole)):
        with Connection(bootstrap) as connection:
            connection.send_frame(whole[:size])
            try:
                connection.read_frame()
            except ConnectionClosedError:
                continue
    assert api_versions_v0(bootstrap)
