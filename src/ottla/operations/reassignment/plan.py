"""Reassignment plans: read from and written to files, and validated. Pure.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3], "log_dirs": ["any",
    "/disk2"]}]}
    {"version": 1, "topics": [{"topic": "orders"}]}
    {"partitions": [{"topic": "orders", "partition": 0}]}

The first is a plan, the second lists topics to generate a plan for, the third lists partitions for leader elections.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.log_dirs import TopicPartitionReplica
from ottla.operations.errors import OperationError

ANY_FOLDER = "any"
VERSION = 1
WORD_LENGTH_MAX = 60

Rows = Mapping[TopicPartition, Sequence[int]]


class PlanError(OperationError):
    """An invalid plan, with Kafka's message."""


class Plan(NamedTuple):
    """The target replicas of each partition, and their log directories if given."""

    replicas: dict[TopicPartition, list[int]]
    folders: dict[TopicPartitionReplica, str]
    repeated: tuple[TopicPartition, ...] = ()

    @property
    def brokers(self) -> set[int]:
        return {broker for row in self.replicas.values() for broker in row}

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.replicas})


def parse_topics(text: str) -> list[str]:
    """The topics to generate a plan for."""
    try:
        fields = as_object(json.loads(text))
        check_version(fields)
        names = [str(row["topic"]) for row in fields.get("topics", ())]
    except (KeyError, TypeError, ValueError):
        raise PlanError("The input string is not a valid JSON") from None
    doubles = duplicates(names)
    if doubles:
        raise PlanError(f"List of topics to reassign contains duplicate entries: [{', '.join(doubles)}]")
    return names


def parse_plan(text: str) -> Plan:
    try:
        fields = as_object(json.loads(text))
    except (TypeError, ValueError) as problem:
        raise PlanError(f"the plan is not valid JSON: {problem}") from None
    check_version(fields)
    replicas: dict[TopicPartition, list[int]] = {}
    folders: dict[TopicPartitionReplica, str] = {}
    repeated = []
    try:
        for row in list_in({"partitions": []} | fields, "partitions"):
            partition = partition_in(row)
            repeated += [partition] if partition in replicas else []
            replicas[partition] = [number(broker, '"replicas"') for broker in list_in(row, "replicas")]
            anywhere = {"log_dirs": [ANY_FOLDER] * len(replicas[partition])}
            places = [str(place) for place in list_in(anywhere | row, "log_dirs")]
            check_folders(partition, replicas[partition], places)
            for broker, place in zip(replicas[partition], places, strict=True):
                if place != ANY_FOLDER:
                    folders[TopicPartitionReplica(partition, broker)] = place
    except ValueError as problem:
        raise PlanError(f"the plan cannot be read: {problem}") from None
    return Plan(dict(sorted(replicas.items())), dict(sorted(folders.items())), tuple(repeated))


def check_plan(plan: Plan) -> None:
    """Reject an invalid plan before any request to the cluster."""
    if not plan.replicas:
        raise PlanError("Partition reassignment list cannot be empty")
    if any(not row for row in plan.replicas.values()):
        raise PlanError("Partition replica list cannot be empty")
    if plan.repeated:
        names = ",".join(map(str, dict.fromkeys(plan.repeated)))
        raise PlanError(f"Partition reassignment contains duplicate topic partitions: {names}")
    doubles = {partition: found for partition, row in plan.replicas.items() if (found := duplicates(row))}
    if doubles:
        words = "; ".join(
            f"{partition} contains multiple entries for {','.join(map(str, found))}"
            for partition, found in doubles.items()
        )
        raise PlanError(f"Partition replica lists may not contain duplicate entries: {words}")


def check_version(fields: Mapping[str, Any]) -> None:
    version = fields.get("version", VERSION)
    if version != VERSION:
        raise PlanError(f"Not supported version field value {version}")


def check_folders(partition: TopicPartition, replicas: Sequence[int], places: Sequence[str]) -> None:
    if len(replicas) != len(places):
        raise PlanError(
            f"Size of replicas list [{', '.join(map(str, replicas))}] is different from size of log dirs list "
            f"[{', '.join(places)}] for partition {partition}"
        )


def as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} instead of an object")
    return value


def partition_in(row: Any) -> TopicPartition:
    """The partition of an entry; ValueError describes the error."""
    return TopicPartition(str(field_in(row, "topic")), number(field_in(row, "partition"), '"partition"'))


def list_in(row: Any, name: str) -> list[Any]:
    found = field_in(row, name)
    if not isinstance(found, list):
        raise ValueError(f'"{name}" must be a list, not {json_excerpt(found)}')
    return found


def field_in(row: Any, name: str) -> Any:
    if not isinstance(row, dict):
        raise ValueError(f'{json_excerpt(row)} instead of an object with the field "{name}"')
    if name not in row:
        raise ValueError(f'the field "{name}" is missing in {json_excerpt(row)}')
    return row[name]


def number(value: Any, what: str) -> int:
    if type(value) is not int:  # true is an int in Python, but not in Kafka
        raise ValueError(f"{what} must be whole numbers, not {json_excerpt(value)}")
    return value


def json_excerpt(value: Any) -> str:
    """A value in JSON, truncated."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WORD_LENGTH_MAX else f"{text[:WORD_LENGTH_MAX]}..."


def duplicates(items: Iterable[Any]) -> list[Any]:
    seen, found = set(), []
    for item in items:
        if item in seen and item not in found:
            found.append(item)
        seen.add(item)
    return found


def plan_text(rows: Rows, folders: Mapping[TopicPartitionReplica, str]) -> str:
    """A plan as one line of JSON; unknown log directories become "any"."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [folders.get(TopicPartitionReplica(partition, broker), ANY_FOLDER) for broker in replicas],
        }
        for partition, replicas in sorted(rows.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False)


def parse_brokers(text: str) -> list[int]:
    brokers = []
    for part in text.split(","):
        try:
            brokers.append(int(part))
        except ValueError:
            raise PlanError(f'For input string: "{part}"') from None
    doubles = duplicates(brokers)
    if doubles:
        raise PlanError(f"Broker list contains duplicate entries: [{', '.join(map(str, doubles))}]")
    return brokers


# ---- leader elections
class ElectionFileError(OperationError):
    """The file is invalid, with Kafka's message."""


def check_json(text: str, path: str) -> None:
    """Report the position of a JSON error: Kafka's tool calls every such file empty."""
    try:
        json.loads(text)
    except ValueError as problem:
        raise ElectionFileError(f"{path} is not valid JSON: {problem}") from None


def parse_partitions(text: str) -> list[TopicPartition]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise ElectionFileError("Replica election data is empty") from None
    if not isinstance(fields, dict) or "partitions" not in fields:
        raise ElectionFileError('Replica election data is missing "partitions" field')
    try:
        partitions = [partition_in(row) for row in list_in(fields, "partitions")]
    except ValueError as problem:
        raise ElectionFileError(f"the list of partitions cannot be read: {problem}") from None
    doubles = duplicates(partitions)
    if doubles:
        names = ", ".join(map(str, doubles))
        raise ElectionFileError(f"Replica election data contains duplicate partitions: [{names}]")
    return partitions
