"""Encoded deltas: each delta is encoded once for all brokers.

A snapshot of a hundred thousand partitions is encoded topic by topic. As message objects it would need much memory, and
their creation and release would hold the GIL for long.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from ottla.controller.cluster.deltas import TOPIC, difference, to_delta_configs, to_delta_features, to_delta_topic
from ottla.controller.image import MetadataImage
from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.messages.inter_broker import ClusterPollResponse, DeltaTopic, MetadataDelta
from ottla.protocol.primitives import uvarint

VERSION: Final = 1  # of ClusterPoll; deltas are equal in all versions
COUNT_BYTES: Final = 1  # of an empty array
TAGS_BYTES: Final = 1  # of a structure without tagged fields
FIRST_BYTES: Final = 20  # of an empty delta before its topics


class EncodedDelta(NamedTuple):
    """A delta in encoded form."""

    sequence: int
    is_snapshot: bool
    body: bytes | bytearray


def encode_delta(delta: MetadataDelta) -> bytes:
    """Return the bytes of a delta inside a ClusterPoll response."""
    data = encode(ClusterPollResponse(deltas=[delta]), VERSION)
    return bytes(memoryview(data)[len(empty_answer()) - TAGS_BYTES : len(data) - TAGS_BYTES])


def encode_answer(response: ClusterPollResponse, deltas: list[bytes | bytearray], version: int) -> EncodedBody:
    """Return the encoded response with these deltas."""
    response.deltas = []
    body = encode(response, version)
    del body[-COUNT_BYTES - TAGS_BYTES :]
    body += uvarint(len(deltas) + 1)
    for delta in deltas:
        body += delta
    body += b"\0"
    return EncodedBody(body)


def encode_snapshot(image: MetadataImage, sequence: int) -> EncodedDelta:
    """Return the snapshot of an image; called in a worker thread."""
    delta = difference(MetadataImage(), without_topics(image), sequence)
    delta.configs += [to_delta_configs(TOPIC, name, image.topic_configs.get(name, {})) for name in image.topics]
    delta.is_snapshot = True
    delta.features = to_delta_features(image.features)
    frame = MetadataDelta(
        sequence=sequence,
        is_snapshot=True,
        cluster_id=delta.cluster_id,
        controller_id=delta.controller_id,
        controller_epoch=delta.controller_epoch,
        brokers=delta.brokers,
    )
    first = len(encode_delta(frame)) - len(encode_delta(MetadataDelta(sequence=0))) + FIRST_BYTES
    whole = encode_delta(delta)
    body = bytearray(whole[:first])
    body += uvarint(len(image.topics) + 1)
    for topic in image.topics.values():
        body += encode_topic(to_delta_topic(None, topic))
    body += whole[first + COUNT_BYTES :]
    while delta.configs:
        delta.configs.pop()
    return EncodedDelta(sequence, True, body)


def without_topics(image: MetadataImage) -> MetadataImage:
    """Return the image without its topics; only usable for encoding."""
    rest = image.with_cluster_id(image.cluster_id)
    rest.lineage, rest.topics = object(), {}
    return rest


def encode_topic(topic: DeltaTopic) -> memoryview:
    data = encode(ClusterPollResponse(deltas=[MetadataDelta(sequence=0, topics=[topic])]), VERSION)
    start = len(empty_answer()) - TAGS_BYTES + FIRST_BYTES + COUNT_BYTES
    after = len(encode_delta(MetadataDelta(sequence=0))) - FIRST_BYTES - COUNT_BYTES + TAGS_BYTES
    return memoryview(data)[start : len(data) - after]


@cache
def empty_answer() -> bytes:
    return bytes(encode(ClusterPollResponse(), VERSION))
