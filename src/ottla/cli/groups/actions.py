"""What both tools for consumer groups do alike: choosing groups, deleting them or their offsets, and saying so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.groups.report import STATES, deletion_lines
from ottla.cli.java.errors import java_sentence, java_text
from ottla.cli.java.order import hash_map_order
from ottla.cli.terminal import UsageError, say
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.client.groups import CLASSIC_TYPE, CONSUMER_TYPE, Listing, delete_groups, delete_offsets, list_groups
from ottla.operations.resets import parse_partitions
from ottla.protocol.messages.consumer_protocol import CONSUMER

TYPES = (CONSUMER_TYPE, CLASSIC_TYPE)
DONE = "Successful"
# What the group as a whole is refused for; its sentence says all.
GROUP_ERRORS = frozenset(
    {
        Error.INVALID_GROUP_ID,
        Error.GROUP_ID_NOT_FOUND,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.NON_EMPTY_GROUP,
    }
)
PARTITION_ERRORS = frozenset(
    {Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.TOPIC_AUTHORIZATION_FAILED, Error.UNKNOWN_TOPIC_OR_PARTITION}
)
WHOLE_TOPIC = -1  # as a partition: a topic whose partitions are not known


class FilterError(UsageError):
    """States or types that no consumer group can have."""


def parse_states(text: str) -> list[str]:
    return _chosen(text, STATES, f"Invalid state list '{text}'. Valid states are: ")


def parse_types(text: str) -> list[str]:
    return _chosen(text, TYPES, f"Invalid types list '{text}'. Valid types are: ")


def list_consumer_groups(client: Client, states: Collection[str] = (), types: Collection[str] = ()) -> list[Listing]:
    """The groups of consumers, in the order in which Kafka's tool lists them."""
    groups = {
        group.group_id: group
        for group in list_groups(client, states, types)
        if group.protocol_type in (CONSUMER, "") and group.type in (*TYPES, "")
    }
    return [groups[group_id] for group_id in hash_map_order(list(groups))]


def delete_groups_lines(client: Client, group_ids: Iterable[str]) -> list[str]:
    answers = delete_groups(client, group_ids)
    failed = hash_map_order([group_id for group_id, answer in answers.items() if answer is not None])
    done = ", ".join(f"'{group_id}'" for group_id in hash_map_order([*answers]) if group_id not in failed)
    if not failed:
        return [f"Deletion of requested consumer groups ({done}) was successful."]
    lines = ["", "Error: Deletion of some consumer groups failed:"]
    for group_id in failed:
        problem = answers[group_id]
        assert problem is not None
        lines.append(f"* Group '{group_id}' could not be deleted due to: {java_text(problem)}")
    return [*lines, "", f"These consumer groups were deleted successfully: {done}"] if done else lines


def delete_offsets_lines(client: Client, group_id: str, words: Sequence[str]) -> list[str]:
    """Forget offsets of `orders:0,2` or `orders`, and tell what became of each partition."""
    results, problem = delete_offsets_of(client, group_id, words)
    statuses = {
        place: DONE if refused is None else f"Error: {java_text(refused)}" for place, refused in results.items()
    }
    return [*_verdict(group_id, problem), *deletion_lines(statuses)]


def delete_offsets_of(
    client: Client, group_id: str, words: Sequence[str]
) -> tuple[dict[TopicPartition, RefusedError | None], RefusedError | None]:
    """What became of each partition, and the refusal of the whole if there is one."""
    partitions = [place for word in words if ":" in word for place in parse_partitions(word)]
    names = [word for word in words if ":" not in word]
    topics = {topic.name: topic for topic in Admin(client).topics(names)} if names else {}
    partitions += [TopicPartition(name, item.number) for name in topics for item in topics[name].partitions]
    unknown = refusal(Error.UNKNOWN_TOPIC_OR_PARTITION)
    results: dict[TopicPartition, RefusedError | None] = {
        TopicPartition(name, WHOLE_TOPIC): unknown for name in names if name not in topics
    }
    try:
        found = delete_offsets(client, group_id, partitions)
    except RefusedError as problem:
        return results | dict.fromkeys(partitions, problem), problem
    return results | found, next((refused for refused in found.values() if refused is not None), None)


def refused_text(problem: RefusedError) -> str:
    """Why a group cannot be described, as Java prints it."""
    if problem.error is Error.INCONSISTENT_GROUP_PROTOCOL:  # a group, but not one of consumers
        return f"java.lang.IllegalArgumentException: {problem.said}"
    return java_text(problem)


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say_error(message: str) -> None:
    say(f"\nError: {message}")


def _verdict(group_id: str, problem: RefusedError | None) -> list[str]:
    if problem is None:
        return [f"Request succeeded for deleting offsets from group {group_id}."]
    if problem.error in GROUP_ERRORS:
        return ["", f"Error: {java_sentence(problem)}"]
    if problem.error in PARTITION_ERRORS:
        return ["", "Error: Encountered some partition-level error, see the follow-up details."]
    return ["", f"Error: Encountered some unknown error: {problem.error.name}"]


def _chosen(text: str, known: Sequence[str], complaint: str) -> list[str]:
    """The known words that a list of words means; case does not matter."""
    if not text:
        return []
    by_word = {word.lower(): word for word in known}
    words = dict.fromkeys(word.strip().lower() for word in text.split(","))
    if not by_word.keys() >= words.keys():
        raise FilterError(complaint + ", ".join(known))
    return [by_word[word] for word in words]
