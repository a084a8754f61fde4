"""Errors of the API: an HTTP status, a code for programs, a sentence for users.

A sentence with names or numbers is a `Sentence`: pages get its pattern and values, and translate it
(pages/core/server-errors-zh.js). Messages of brokers are not translated; their error code is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Self, TypeVar

import msgspec

from ottla.base.errors import Error
from ottla.client.errors import BadPropertyError, BrokerError, ClientError
from ottla.web.errors import HttpError

T = TypeVar("T")
PLACEHOLDER = re.compile(r"\{(\d)\}")


class Sentence(str):
    """An English sentence from a pattern such as `there is no topic {0}` and values."""

    __slots__ = ("pattern", "values")
    pattern: str
    values: list[str]

    def __new__(cls, pattern: str, *values: object) -> Self:
        texts = [str(value) for value in values]
        made = super().__new__(cls, PLACEHOLDER.sub(lambda found: texts[int(found[1])], pattern))
        made.pattern, made.values = pattern, texts
        return made


class ApiError(HttpError):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, str(message), headers)
        self.code = code
        self.sentence = message if isinstance(message, Sentence) else None


NOT_FOUND = {
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.GROUP_ID_NOT_FOUND,
    Error.TRANSACTIONAL_ID_NOT_FOUND,
    Error.RESOURCE_NOT_FOUND,
    Error.DELEGATION_TOKEN_NOT_FOUND,
}
CONFLICT = {
    Error.TOPIC_ALREADY_EXISTS,
    Error.NON_EMPTY_GROUP,
    Error.GROUP_SUBSCRIBED_TO_TOPIC,
    Error.UNKNOWN_MEMBER_ID,
    Error.REASSIGNMENT_IN_PROGRESS,
    Error.SECURITY_DISABLED,
    Error.DELEGATION_TOKEN_AUTH_DISABLED,
}
FORBIDDEN = {
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.CLUSTER_AUTHORIZATION_FAILED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    Error.DELEGATION_TOKEN_OWNER_MISMATCH,
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    Error.POLICY_VIOLATION,
    Error.TOPIC_DELETION_DISABLED,
}
FORBIDDEN_CODE = "FORBIDDEN"


def not_found(pattern: str, *values: object) -> ApiError:
    return ApiError(404, "NOT_FOUND", format_sentence(pattern, values))


def bad_request(pattern: str, *values: object) -> ApiError:
    return ApiError(400, "BAD_REQUEST", format_sentence(pattern, values))


def invalid_topic(problem: str) -> ApiError:
    """An invalid topic name; `problem` is Kafka's message."""
    return ApiError(400, Error.INVALID_TOPIC_EXCEPTION.name, problem)


def conflict(code: str, pattern: str, *values: object) -> ApiError:
    return ApiError(409, code, format_sentence(pattern, values))


def forbidden(pattern: str, *values: object) -> ApiError:
    return ApiError(403, FORBIDDEN_CODE, format_sentence(pattern, values))


def check_unchanged(
    before: Mapping[str, T], expected: Mapping[str, T | None], shown: Callable[[T | None], object] = lambda value: value
) -> None:
    """Raises ApiError if a value is no longer the one that the caller has seen."""
    for key, value in expected.items():
        if before.get(key) != value:
            words = "{0} was changed to {1} meanwhile: reload before you change it"
            raise conflict("CHANGED_MEANWHILE", words, key, shown(before.get(key)))


def format_sentence(pattern: str, values: tuple[object, ...]) -> str:
    """Without values the text is final: foreign messages may contain braces."""
    return Sentence(pattern, *values) if values else pattern


def from_client_error(problem: ClientError) -> ApiError:
    """The API error for an error of the Kafka client."""
    code = problem.error.name if problem.error is not None else "UNREACHABLE"
    if isinstance(problem, BadPropertyError):
        return bad_request(str(problem))
    if problem.error in NOT_FOUND:
        return ApiError(404, code, str(problem))
    if problem.error in CONFLICT:
        return ApiError(409, code, str(problem))
    if problem.error in FORBIDDEN:
        return ApiError(403, code, Sentence("the cluster refused: {0}", problem))
    # also values that do not fit into a request, such as a name of 40,000 letters
    if problem.error is Error.INVALID_REQUEST:
        return ApiError(400, code, str(problem))
    if problem.error is Error.REQUEST_TIMED_OUT:
        return ApiError(504, code, str(problem))
    if isinstance(problem, BrokerError) and not problem.is_retriable:
        return ApiError(400, code, str(problem))
    return ApiError(503, code, str(problem))


LASTING_ERRORS = frozenset(
    {
        Error.SECURITY_DISABLED,
        Error.UNSUPPORTED_VERSION,
        Error.CLUSTER_AUTHORIZATION_FAILED,
        Error.DELEGATION_TOKEN_AUTH_DISABLED,
        Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


class Unavailable(msgspec.Struct, frozen=True):
    """Why a cluster does not provide some data: Kafka's error code and the message. Pages disable what needs it."""

    error: str
    message: str


def to_unavailable(problem: ClientError) -> Unavailable:
    """Convert an error that lasts (no authorizer, too old, not authorized); re-raise all others."""
    if problem.error not in LASTING_ERRORS:
        raise problem
    answer = from_client_error(problem)
    return Unavailable(answer.code, str(problem))
