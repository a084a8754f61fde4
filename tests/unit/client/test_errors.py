"""The exception type of the client."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.client.errors import error_from_code


def test_the_brokers_own_sentence_wins() -> None:
    problem = error_from_code(Error.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.")
    assert str(problem) == "Topic 'a' already exists."
    assert problem.error is Error.TOPIC_ALREADY_EXISTS
    assert not problem.is_retriable


def test_a_code_without_a_sentence_gets_one() -> None:
    assert str(error_from_code(Error.NOT_CONTROLLER)) == "the broker is not the controller"
    assert error_from_code(Error.NOT_CONTROLLER).is_retriable
    assert str(error_from_code(Error.FENCED_INSTANCE_ID)) == "fenced instance id"


def test_a_code_from_the_future_is_an_unknown_server_error() -> None:
    assert error_from_code(9999).error is Error.UNKNOWN_SERVER_ERROR


def test_the_exception_shows_its_code() -> None:
    assert (
        repr(error_from_code(Error.NOT_CONTROLLER)) == "<ClientError NOT_CONTROLLER: the broker is not the controller>"
    )
