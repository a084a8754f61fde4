"""What goes wrong, as HTTP tells it: a status, a code that programs know, a sentence for people.

A sentence that holds names or numbers is a `Sentence`: pages get its pattern and its values, too, and say it in the
language of their reader (pages/core/refusals-zh.js). What a broker has said stays in its words, under its code.
"""

from __future__ import annotations

import re
from typing import Self

from ottla.base.errors import Error
from ottla.client.errors import BadPropertyError, ClientError, RefusedError

PLACE = re.compile(r"\{(\d)\}")


class Sentence(str):
    """English words, made of a pattern such as `there is no topic {0}` and what stands in its places."""

    __slots__ = ("pattern", "values")
    pattern: str
    values: list[str]

    def __new__(cls, pattern: str, *values: object) -> Self:
        texts = [str(value) for value in values]
        made = super().__new__(cls, PLACE.sub(lambda found: texts[int(found[1])], pattern))
        made.pattern, made.values = pattern, texts
        return made


class ApiError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = str(message)
        self.sentence = message if isinstance(message, Sentence) else None
        self.headers = headers or {}

    def __repr__(self) -> str:
        return f"<ApiError {self.status} {self.code}: {self.message}>"


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
    return ApiError(404, "NOT_FOUND", sentence(pattern, values))


def bad_request(pattern: str, *values: object) -> ApiError:
    return ApiError(400, "BAD_REQUEST", sentence(pattern, values))


def bad_topic(problem: str) -> ApiError:
    """A name that no topic can have; `problem` are Kafka's words."""
    return ApiError(400, Error.INVALID_TOPIC_EXCEPTION.name, problem)


def conflict(code: str, pattern: str, *values: object) -> ApiError:
    return ApiError(409, code, sentence(pattern, values))


def forbidden(pattern: str, *values: object) -> ApiError:
    return ApiError(403, FORBIDDEN_CODE, sentence(pattern, values))


def sentence(pattern: str, values: tuple[object, ...]) -> str:
    """Without values it is as it stands: words of somebody else may hold braces."""
    return Sentence(pattern, *values) if values else pattern


def of_cluster(problem: ClientError) -> ApiError:
    """What a cluster has refused, or why it could not be asked."""
    code = problem.error.name if problem.error is not None else "UNREACHABLE"
    if isinstance(problem, BadPropertyError):
        return bad_request(str(problem))
    if problem.error in NOT_FOUND:
        return ApiError(404, code, str(problem))
    if problem.error in CONFLICT:
        return ApiError(409, code, str(problem))
    if problem.error in FORBIDDEN:
        return ApiError(403, code, Sentence("the cluster says: {0}", problem))
    if problem.error is Error.INVALID_REQUEST:  # also what no request can hold: a name of 40,000 letters
        return ApiError(400, code, str(problem))
    if problem.error is Error.REQUEST_TIMED_OUT:
        return ApiError(504, code, str(problem))
    if isinstance(problem, RefusedError) and not problem.is_retriable:
        return ApiError(400, code, str(problem))
    return ApiError(503, code, str(problem))
