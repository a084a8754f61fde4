"""Errors of the client: one exception type, with one readable sentence each."""

from __future__ import annotations

from ottla.base.errors import Error

# A retry after these errors, perhaps with fresh metadata, can succeed.
RETRIABLE = frozenset(
    {
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.REPLICA_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,  # the previous transaction has not ended yet
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NOT_CONTROLLER,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.PREFERRED_LEADER_NOT_AVAILABLE,
        Error.THROTTLING_QUOTA_EXCEEDED,
    }
)

# Brokers send many codes without a message; these are the most common ones.
ERROR_MESSAGES = {
    Error.UNKNOWN_SERVER_ERROR: "unexpected error in the broker; its log has details",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    Error.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    Error.REQUEST_TIMED_OUT: "the broker did not finish in time; the work may still go on",
    Error.INVALID_TOPIC_EXCEPTION: "the topic name is not valid",
    Error.TOPIC_AUTHORIZATION_FAILED: "not authorized to do this with the topic",
    Error.GROUP_AUTHORIZATION_FAILED: "not authorized to do this with the group",
    Error.CLUSTER_AUTHORIZATION_FAILED: "not authorized to do this with the cluster",
    Error.UNSUPPORTED_VERSION: "the broker does not know this version of the request",
    Error.TOPIC_ALREADY_EXISTS: "the topic already exists",
    Error.INVALID_PARTITIONS: "the number of partitions is not valid",
    Error.INVALID_REPLICATION_FACTOR: "the replication factor is not valid",
    Error.INVALID_REPLICA_ASSIGNMENT: "the replica assignment is not valid",
    Error.INVALID_CONFIG: "the setting is not valid",
    Error.NOT_CONTROLLER: "the broker is not the controller",
    Error.POLICY_VIOLATION: "a policy of the cluster forbids it",
    Error.TOPIC_DELETION_DISABLED: "the cluster does not delete topics (delete.topic.enable=false)",
    Error.UNKNOWN_TOPIC_ID: "no topic has this id",
    Error.COORDINATOR_NOT_AVAILABLE: "the group or transaction has no coordinator at the moment",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading; try again in a moment",
    Error.INVALID_GROUP_ID: "the name of the group is not valid",
    Error.GROUP_ID_NOT_FOUND: "the group does not exist",
    Error.NON_EMPTY_GROUP: "the group has members: stop its consumers first",
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads this topic: stop its consumers first",
    Error.UNKNOWN_MEMBER_ID: "the group has members: stop its consumers first",
    Error.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id is not known",
    Error.INVALID_REGULAR_EXPRESSION: "the regular expression is not valid",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation tokens: set delegation.token.secret.key",
    Error.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    Error.DELEGATION_TOKEN_OWNER_MISMATCH: "another user owns the delegation token, and you may not renew it",
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens need a login, and not one with a token",
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized to create delegation tokens for this user",
    Error.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired",
    Error.INVALID_PRINCIPAL_TYPE: "only users have delegation tokens: write User:name",
}


class ClientError(Exception):
    """A call that failed for good; str() is one sentence with the cause and, if there is one, the cure."""

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        self.error = error

    @property
    def is_retriable(self) -> bool:
        return self.error in RETRIABLE

    def __repr__(self) -> str:
        return f"<ClientError {self.error.name if self.error is not None else 'local'}: {self}>"


class BrokerError(ClientError):
    """An error code from a broker; `said` is the broker's message, or None."""

    def __init__(self, message: str, error: Error, said: str | None) -> None:
        super().__init__(message, error)
        self.error: Error = error
        self.broker_message = said


def error_of(code: int) -> Error:
    """The error of a code; unknown codes of newer brokers become UNKNOWN_SERVER_ERROR."""
    return Error(code)


def error_from_code(code: int, message: str | None = None) -> BrokerError:
    """The exception for an error code in a response, with the broker's message if there is one."""
    error = error_of(code)
    words = message or ERROR_MESSAGES.get(error) or error.name.replace("_", " ").lower()
    return BrokerError(words, error, message)


def raise_for_error(code: int, message: str | None = None) -> None:
    """Raise the exception for an error code in a response; nothing for success."""
    if code:
        raise error_from_code(code, message)


class BadPropertyError(ClientError):
    """Invalid client properties; no request was sent."""
