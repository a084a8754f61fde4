"""Deltas as bytes: each is encoded once, however many brokers are told.

A snapshot of a hundred thousand partitions is made topic by topic, and never there as a whole but in bytes: to make all
of its rows, keep them and let them go at once would cost much memory, and stop every thread for a while.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from ottla.controller.cluster.deltas import TOPIC, difference, to_delta_configs, to_delta_features, to_delta_topic
from ottla.controller.image import MetadataImage
from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.messages.cluster_poll import ClusterPollResponse, DeltaTopic, MetadataDelta
from ottla.protocol.primitives import uvarint

VERSION: Final = 1  # of ClusterPoll; deltas are the same in all of them
COUNT_BYTES: Final = 1  # of an array without items
TAGS_BYTES: Final = 1  # of a message or part without tagged fields
FIRST_BYTES: Final = 20  # of an empty delta before its topics


class EncodedDelta(NamedTuple):
    """One that is bytes already."""

    sequence: int
    is_snapshot: bool
    body: bytes | bytearray


def encode_delta(delta: MetadataDelta) -> bytes:
    """What an answer with it has more than one without."""
    data = encode(ClusterPollResponse(deltas=[delta]), VERSION)
    return bytes(memoryview(data)[len(empty_answer()) - TAGS_BYTES : len(data) - TAGS_BYTES])


def encode_answer(response: ClusterPollResponse, deltas: list[bytes | bytearray], version: int) -> EncodedBody:
    """An answer, with these deltas in the place of its own."""
    response.deltas = []
    body = encode(response, version)
    del body[-COUNT_BYTES - TAGS_BYTES :]
    body += uvarint(len(deltas) + 1)
    for delta in deltas:
        body += delta
    body += b"\0"
    return EncodedBody(body)


def encode_snapshot(image: MetadataImage, sequence: int) -> EncodedDelta:
    """All of an image; for a worker."""
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
    """All the rest of an image; good for nothing but to be told."""
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
