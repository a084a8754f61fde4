"""Encoded deltas: the same bytes as those of the codec for the whole response."""

from __future__ import annotations

from hypothesis import given
from tests.unit.controller.test_deltas import facts, images

from ottla.controller.cluster.deltas import apply_delta, snapshot
from ottla.controller.cluster.encoded_deltas import encode_answer, encode_delta, encode_snapshot
from ottla.controller.image import MetadataImage
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.messages.inter_broker import ClusterPollResponse


@given(images(), images())
def test_an_answer_of_kept_pieces_is_the_answer_that_the_codec_makes(one: MetadataImage, two: MetadataImage) -> None:
    deltas = [snapshot(one, 5), snapshot(two, 6)]
    for version in (0, 1):
        whole = bytes(encode(ClusterPollResponse(controller_epoch=3, deltas=deltas), version))
        answer = ClusterPollResponse(controller_epoch=3, deltas=list(deltas))
        assert bytes(encode_answer(answer, [encode_delta(each) for each in deltas], version).body) == whole


@given(images())
def test_a_snapshot_made_topic_by_topic_brings_the_same_image(image: MetadataImage) -> None:
    made = encode_snapshot(image, 9)
    answer = encode_answer(ClusterPollResponse(controller_epoch=3), [made.body], 1)
    (delta,) = decode_whole(ClusterPollResponse, 1, memoryview(answer.body)).deltas
    assert (delta.is_snapshot, delta.sequence) == (True, 9)
    assert facts(apply_delta(MetadataImage(), delta)) == facts(apply_delta(MetadataImage(), snapshot(image, 9)))
