"""Topic names and numbers that must not be: refused with Kafka's code and words, and nothing of them remains."""

from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.peer import Peer

pytestmark = pytest.mark.usefixtures("broker_stays_healthy")

INVALID_TOPIC, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION = 17, 37, 38, 44
BAD_CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
NAMES = {
    "": "the empty string is not allowed",
    ".": "'.' is not allowed",
    "..": "'..' is not allowed",
    "a/b": f"'a/b' {BAD_CHARACTERS}",
    "../../etc": f"'../../etc' {BAD_CHARACTERS}",
    "a" * 250: f"the length of '{'a' * 250}' is longer than the max allowed length 249",
    "a\0b": f"'a\0b' {BAD_CHARACTERS}",
    "a\nb": f"'a\nb' {BAD_CHARACTERS}",
    "a b": f"'a b' {BAD_CHARACTERS}",
    "\u202eabc": f"'\u202eabc' {BAD_CHARACTERS}",
    "ä": f"'ä' {BAD_CHARACTERS}",
    "<script>": f"'<script>' {BAD_CHARACTERS}",
}


def create(peer: Peer, name: str, partitions: int = 1, replication_factor: int = 1, *, validate: bool = False) -> Any:
    row = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=[]
    )
    return peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=validate), 7).topics[0]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_a_bad_name_answers_17_and_leaves_nothing(peer: Peer, broker: Any, name: str) -> None:
    answer = create(peer, name)
    assert (answer.error_code, answer.error_message) == (INVALID_TOPIC, f"Topic name is invalid: {NAMES[name]}")
    assert name not in peer.topic_names()
    if broker is not None:
        folders = [entry.name for entry in Path(broker.data_directory).iterdir()]
        assert not [folder for folder in folders if folder.startswith("a") and name.startswith("a")]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_metadata_does_not_create_a_topic_with_a_bad_name(peer: Peer, name: str) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=None)]
    (answer,) = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12).topics
    assert (answer.error_code, answer.name) == (INVALID_TOPIC, name)
    assert name not in peer.topic_names()


def test_a_name_of_249_characters_is_fine(peer: Peer, topic_name: str) -> None:
    name = topic_name + "x" * (249 - len(topic_name))
    assert create(peer, name).error_code == 0
    peer.wait_until_led(name)
    assert name in peer.topic_names()


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "error", "message"),
    [
        (0, 1, INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (-5, 1, INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (2**31 - 1, 1, POLICY_VIOLATION, "Excessively large number of partitions per request."),
        (1, 0, INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            1,
            -7,
            INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (1, 2, INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 2 time(s)"),
        (1, 32767, INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 32767 time(s)"),
    ],
)
@pytest.mark.parametrize("validate", [False, True], ids=["create", "validate only"])
def test_bad_numbers_answer_37_38_or_44(
    peer: Peer, topic_name: str, partitions: int, replication_factor: int, error: int, message: str, validate: bool
) -> None:
    answer = create(peer, topic_name, partitions, replication_factor, validate=validate)
    assert answer.error_code == error
    assert answer.error_message.startswith(message)
    assert topic_name not in peer.topic_names()


@pytest.mark.parametrize(("partitions", "replication_factor"), [(-1, -1), (-1, 1), (1, -1)])
def test_minus_one_means_the_brokers_default(
    peer: Peer, topic_name: str, partitions: int, replication_factor: int
) -> None:
    answer = create(peer, topic_name, partitions, replication_factor)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)
