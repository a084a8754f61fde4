"""Many topics in one request: each succeeds or fails by itself, also if a response was lost."""

from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import Error
from ottla.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from ottla.client.client import LOST_CONNECTIONS_MAX, Client
from ottla.client.errors import ClientError
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)

ONE = NewTopic(1, 1, {})
EXISTS, UNKNOWN = Error.TOPIC_ALREADY_EXISTS, Error.UNKNOWN_TOPIC_OR_PARTITION
Answers = Callable[..., tuple[Client, list[list[str]]]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """A client with the given responses in order; None is a lost response."""

    def make(*answers: object) -> tuple[Client, list[list[str]]]:
        client = Client("127.0.0.1:1", sleep=lambda _: None)
        asked: list[list[str]] = []
        left = iter(answers)

        def call(request: object, *_: object) -> object:
            def attempt() -> object:
                client.requests += 1
                asked.append([topic.name for topic in request.topics])  # type: ignore[attr-defined]
                answer = next(left)
                if answer is None:
                    raise ClientError("lost the connection", Error.NETWORK_EXCEPTION)
                return answer

            return client.retry(attempt)

        monkeypatch.setattr(client, "cluster", MetadataResponse)
        monkeypatch.setattr(client, "call_controller", call)
        return client, asked

    return make


def created(**errors: Error) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code) for name, code in errors.items()]
    )


def test_refused_topics_are_named(answering: Answers) -> None:
    client, asked = answering(created(a=Error.NONE, b=EXISTS, c=Error.INVALID_CONFIG))
    refused = create_topics(client, dict.fromkeys("abc", ONE))
    assert ({name: problem.error for name, problem in refused.items()}, asked) == (
        {"b": EXISTS, "c": Error.INVALID_CONFIG},
        [["a", "b", "c"]],
    )


def test_only_those_that_may_succeed_later_are_asked_again(answering: Answers) -> None:
    client, asked = answering(created(a=Error.NONE, b=Error.NOT_CONTROLLER), created(b=Error.NONE))
    assert create_topics(client, dict.fromkeys("ab", ONE)) == {}
    assert asked == [["a", "b"], ["b"]]


def test_after_a_lost_answer_a_topic_that_is_there_is_the_one_we_made(answering: Answers) -> None:
    client, _ = answering(None, created(a=EXISTS, b=Error.INVALID_CONFIG))
    assert set(create_topics(client, dict.fromkeys("ab", ONE))) == {"b"}
    client, _ = answering(None, created(a=EXISTS))
    assert set(create_topics(client, {"a": ONE}, validate_only=True)) == {"a"}


def test_the_same_when_one_call_lost_so_many_answers_that_it_gave_up(answering: Answers) -> None:
    """A controller that dies: the call itself retries a few times, and then the caller repeats it."""
    client, asked = answering(*[None] * LOST_CONNECTIONS_MAX, created(a=EXISTS))
    assert create_topics(client, {"a": ONE}) == {}
    assert len(asked) == LOST_CONNECTIONS_MAX + 1


def test_the_same_for_partitions_and_for_topics_that_go(answering: Answers) -> None:
    grown = CreatePartitionsTopicResult(name="a", error_code=Error.INVALID_PARTITIONS)
    client, _ = answering(None, CreatePartitionsResponse(results=[grown]))
    assert create_partitions(client, {"a": 3}) == {}
    client, _ = answering(CreatePartitionsResponse(results=[grown]))
    assert set(create_partitions(client, {"a": 3})) == {"a"}
    gone = DeletableTopicResult(name="a", error_code=UNKNOWN)
    client, _ = answering(None, DeleteTopicsResponse(responses=[gone]))
    assert delete_topics(client, ["a"]) == {}
    client, _ = answering(DeleteTopicsResponse(responses=[gone]))
    assert set(delete_topics(client, ["a"])) == {"a"}
