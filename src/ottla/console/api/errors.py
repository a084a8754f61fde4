"""What goes wrong, as HTTP tells it: a status, a code that programs know, a sentence for people."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.client.errors import BadPropertyError, ClientError, RefusedError


class ApiError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def __repr__(self) -> str:
        return f"<ApiError {self.status} {self.code}: {self.message}>"


NOT_FOUND = {
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.GROUP_ID_NOT_FOUND,
    Error.TRANSACTIONAL_ID_NOT_FOUND,
}
CONFLICT = {
    Error.TOPIC_ALREADY_EXISTS,
    Error.NON_EMPTY_GROUP,
    Error.GROUP_SUBSCRIBED_TO_TOPIC,
    Error.UNKNOWN_MEMBER_ID,
    Error.REASSIGNMENT_IN_PROGRESS,
}
FORBIDDEN = {
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.CLUSTER_AUTHORIZATION_FAILED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Error.POLICY_VIOLATION,
    Error.TOPIC_DELETION_DISABLED,
}
FORBIDDEN_CODE = "FORBIDDEN"


def not_found(what: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", what)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message)


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
        return ApiError(403, code, f"the cluster says: {problem}")
    if problem.error is Error.INVALID_REQUEST:  # also what no request can hold: a name of 40,000 letters
        return ApiError(400, code, str(problem))
    if problem.error is Error.REQUEST_TIMED_OUT:
        return ApiError(504, code, str(problem))
    if isinstance(problem, RefusedError) and not problem.is_retriable:
        return ApiError(400, code, str(problem))
    return ApiError(503, code, str(problem))
