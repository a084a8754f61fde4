"""The exceptions of Java's clients for broker errors: Kafka's tools print them, and scripts look for them.

`org.apache.kafka.common.errors.OffsetOutOfRangeException: The requested offset is ...`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.base.errors import Error
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn
from ottla.client.errors import BrokerError, ClientError
from ottla.operations.errors import OperationError

PACKAGE = "org.apache.kafka.common.errors."
WRAPPER = "java.util.concurrent.ExecutionException: "

# Error codes whose exception class has another name.
_CLASSES = {
    Error.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    Error.CORRUPT_MESSAGE: "CorruptRecordException",
    Error.REQUEST_TIMED_OUT: "TimeoutException",
    Error.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    Error.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    Error.NETWORK_EXCEPTION: "NetworkException",
    Error.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    Error.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    Error.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    Error.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    Error.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    Error.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    Error.INVALID_CONFIG: "InvalidConfigurationException",
    Error.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    Error.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    Error.NON_EMPTY_GROUP: "GroupNotEmptyException",
    Error.INVALID_RECORD: "InvalidRecordException",
    Error.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    Error.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    Error.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    Error.INVALID_REGULAR_EXPRESSION: "InvalidRegularExpression",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
}

# Java's default messages, for responses that contain only an error code.
_SENTENCES = {
    Error.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    Error.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    Error.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the middle of a leadership "
    "election.",
    Error.REQUEST_TIMED_OUT: "The request timed out.",
    Error.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    Error.UNSUPPORTED_VERSION: "The version of API is not supported.",
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The message format version on the broker does not support the request.",
    Error.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    Error.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk.",
    Error.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Error.NOT_COORDINATOR: "This is not the correct coordinator.",
    Error.INVALID_GROUP_ID: "The group id is invalid.",
    Error.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    Error.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Error.NON_EMPTY_GROUP: "The group is not empty.",
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is actively "
    "subscribed to it.",
    Error.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    Error.DELEGATION_TOKEN_NOT_FOUND: "Delegation Token is not found on server.",
    Error.DELEGATION_TOKEN_OWNER_MISMATCH: "Specified Principal is not valid Owner/Renewer.",
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL "
    "channels and on delegation token authenticated channels.",
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    Error.DELEGATION_TOKEN_EXPIRED: "Delegation Token is expired.",
    Error.INVALID_PRINCIPAL_TYPE: "Supplied principalType is not supported.",
}


def java_class(error: Error) -> str:
    """The exception class that a Java client throws for this code."""
    words = error.name.split("_")
    return PACKAGE + (_CLASSES.get(error) or "".join(word.capitalize() for word in words) + "Exception")


def java_sentence(problem: ClientError) -> str:
    """The message of the exception: the broker's, else Java's default; ottla's own for client-side errors."""
    if not isinstance(problem, BrokerError):
        return str(problem)
    return problem.broker_message if problem.broker_message is not None else _SENTENCES.get(problem.error, str(problem))


def java_text(problem: ClientError) -> str:
    """The exception as Java prints it."""
    if not isinstance(problem, BrokerError):
        return str(problem)
    return f"{java_class(problem.error)}: {java_sentence(problem)}"


@contextmanager
def wrap_refusals() -> Iterator[None]:
    """Report refusals as Java does while it waits for a future: wrapped in an ExecutionException."""
    try:
        yield
    except BrokerError as problem:
        raise ToolError(WRAPPER + java_text(problem)) from None


def run_reporting_errors(body: Callable[[], int], prefix: str = "") -> int:
    """Run a tool; an error becomes its last line on stderr in Java's wording, after the prefix `prefix`."""
    try:
        return body()
    except ClientError as problem:
        text = java_text(problem)
    except OperationError as problem:
        text = str(problem)
    sys.stdout.flush()
    warn(f"{prefix}{text}")
    return EXIT_FAILED
