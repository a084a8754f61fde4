"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs as functions, without a socket.

The words of the refusals are compared with Apache Kafka in tests/conformance; here is what needs a made-up broker.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import virtual_time
from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.configs.entries import Source
from ottla.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from ottla.controller.decisions.config_changes import ConfigResourceType, OperationType
from ottla.controller.image import MetadataImage, TopicImage
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SET, DELETE = OperationType.SET, OperationType.DELETE


class FakeController:
    """Runs decisions on an image, or fails as a broken store does."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.failure: KafkaError | None = None

    async def change(
        self,
        decide: Callable[[MetadataImage], Any],
        *,
        validate_only: bool = False,
        size: int = 0,
    ) -> Any:
        if self.failure is not None:
            raise self.failure
        decision = decide(self.image)
        if not validate_only:
            self.image = decision.image
        return decision.reply


class FakeBroker:
    node_id = 1
    cluster = None
    security_changes = None

    def __init__(self, settings: BrokerSettings) -> None:
        topic = TopicImage("orders", uuid.uuid4(), ())
        self.controller = FakeController(MetadataImage(topics={"orders": topic}, topic_configs={"orders": {}}))
        self.settings = settings

    @property
    def image(self) -> MetadataImage:
        return self.controller.image


class FakeContext:
    """One request to a made-up broker; `refused` lists what its client may not do."""

    is_forwarded = False

    def __init__(self, **texts: str) -> None:
        named = {name.replace("_", "."): text for name, text in texts.items()}
        self.broker = FakeBroker(load_broker_settings(None, {"listeners": "PLAINTEXT://127.0.0.1:9092", **named}))
        self.refused: set[tuple[Operation, ResourceType, str]] = set()

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) not in self.refused

    sees = is_granted = may

    # ---- the three handlers, for one resource

    def describe(self, resource_type: int, name: str, *keys: str, documentation: bool = False) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documentation
        )
        (result,) = virtual_time.run(describe_configs.handle(request, self)).results  # type: ignore[arg-type]
        return result

    def entry(self, resource_type: int, name: str, key: str) -> DescribeConfigsResourceResult:
        (entry,) = self.describe(resource_type, name, key).configs
        return entry

    def change(
        self, resource_type: int, name: str, *changes: tuple[int, str, str | None], validate_only: bool = False
    ) -> tuple[int, str | None]:
        configs = [
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ]
        resource = IncrementalAlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (answer,) = virtual_time.run(incremental_alter_configs.handle(request, self)).responses  # type: ignore[arg-type]
        return answer.error_code, answer.error_message

    def replace(self, resource_type: int, name: str, **texts: str) -> tuple[int, str | None]:
        configs = [AlterableConfig(name=key.replace("_", "."), value=text) for key, text in texts.items()]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        request = AlterConfigsRequest(resources=[resource])
        (answer,) = virtual_time.run(alter_configs.handle(request, self)).responses  # type: ignore[arg-type]
        return answer.error_code, answer.error_message


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def quiet_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("ottla.test.configs")
    yield logger
    logger.setLevel(logging.NOTSET)


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(item.name, item.value, item.source) for item in entry.synonyms]


def test_a_static_value_stands_between_changes_and_default() -> None:
    context = FakeContext(message_max_bytes="2000")
    assert context.change(BROKER, "", (SET, "message.max.bytes", "3000")) == (0, None)
    assert context.change(BROKER, "1", (SET, "message.max.bytes", "4000")) == (0, None)
    entry = context.entry(BROKER, "1", "message.max.bytes")
    assert (entry.value, entry.config_source) == ("4000", Source.DYNAMIC_BROKER)
    assert synonyms(entry) == [
        ("message.max.bytes", "4000", Source.DYNAMIC_BROKER),
        ("message.max.bytes", "3000", Source.DYNAMIC_DEFAULT_BROKER),
        ("message.max.bytes", "2000", Source.STATIC_BROKER),
        ("message.max.bytes", "1048588", Source.DEFAULT),
    ]
    assert context.entry(TOPIC, "orders", "max.message.bytes").value == "4000"


def test_static_hours_show_in_a_topics_value_but_not_as_its_source() -> None:
    """Kafka drops what stands before the finest key, so it calls this a default."""
    entry = FakeContext(log_retention_hours="1").entry(TOPIC, "orders", "retention.ms")
    assert (entry.value, entry.config_source, synonyms(entry)) == ("3600000", Source.DEFAULT, [])


def test_secrets_and_unknown_keys_are_never_shown() -> None:
    context = FakeContext(ssl_keystore_password="pa55", my_plug_in="pa55")
    for key in ("ssl.keystore.password", "my.plug.in"):
        entry = context.entry(BROKER, "1", key)
        assert (entry.value, entry.is_sensitive) == (None, True)
        assert synonyms(entry) == [(key, None, Source.STATIC_BROKER)]
    assert "pa55" not in repr(context.describe(BROKER, "1"))


def test_an_internal_key_is_shown_once_the_file_sets_it() -> None:
    key = "producer.id.expiration.check.interval.ms"
    assert FakeContext().describe(BROKER, "1", key).configs == []
    assert FakeContext(producer_id_expiration_check_interval_ms="5").entry(BROKER, "1", key).value == "5"


def test_documentation_is_our_own_sentence(context: FakeContext) -> None:
    (entry,) = context.describe(BROKER, "1", "num.partitions", documentation=True).configs
    assert entry.documentation == BrokerSettings.num_partitions.note


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.plaintext.sasl.oauthbearer.jwks.endpoint.url",
        "listener.name.plaintext.no.such.key",
        "sasl.server.callback.handler.class",
        "metric.reporters",
        "config.providers",
        "listeners",
        "log.dirs",
        "my.own.key",
        "zookeeper.connect",
    ],
)
@pytest.mark.parametrize("broker", ["1", ""])
def test_only_listed_keys_can_be_changed_over_the_wire(context: FakeContext, broker: str, key: str) -> None:
    refusal = (Error.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key}]")
    assert context.change(BROKER, broker, (SET, key, "x")) == refusal
    assert context.broker.image.broker_configs == {}
    if key in BrokerSettings.keys and not BrokerSettings.keys[key].is_internal:
        assert context.entry(BROKER, "1", key).read_only


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("ssl.keystore.location", "only per-listener using the listener prefix: [ssl.keystore.location]"),
        ("listener.name.plaintext.ssl.keystore.location", "ottla.dynamic.config.allowed.paths"),
        ("sasl.jaas.config", "sasl.jaas.config: line 1"),
        ("principal.builder.class", "Class x could not be found."),
    ],
)
def test_what_names_files_or_classes_is_refused_with_a_reason(context: FakeContext, key: str, words: str) -> None:
    error, message = context.change(BROKER, "1", (SET, key, "x"))
    assert error is Error.INVALID_REQUEST
    assert words in str(message)
    assert context.broker.image.broker_configs == {}


def test_folders_are_cordoned_per_broker_only(context: FakeContext) -> None:
    assert context.change(BROKER, "", (SET, "cordoned.log.dirs", "")) == (
        Error.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
    )
    assert context.change(BROKER, "1", (SET, "cordoned.log.dirs", "")) == (0, None)


def test_an_operation_that_nobody_knows(context: FakeContext) -> None:
    code, message = context.change(TOPIC, "orders", (9, "retention.ms", "5"))
    assert (code, message) == (Error.INVALID_REQUEST, "Unknown operation type 9 for config key: retention.ms")


def test_groups_and_subscriptions_are_there_while_they_have_settings(context: FakeContext) -> None:
    group, metrics = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
    assert context.change(group, "g", (SET, "consumer.session.timeout.ms", "46000")) == (0, None)
    assert context.change(metrics, "m", (SET, "interval.ms", "100"), (SET, "metrics", "a, b")) == (0, None)
    assert context.broker.image.group_configs == {"g": {"consumer.session.timeout.ms": "46000"}}
    assert context.change(group, "g", (DELETE, "consumer.session.timeout.ms", None)) == (0, None)
    assert context.change(metrics, "m", (DELETE, "interval.ms", None)) == (0, None)
    assert context.broker.image.group_configs == {}
    assert context.broker.image.client_metrics_configs == {"m": {"metrics": "a, b"}}


def test_a_store_that_fails_is_told_for_each_resource(context: FakeContext) -> None:
    context.broker.controller.failure = KafkaError(Error.KAFKA_STORAGE_ERROR, "The metadata store refused the change")
    assert context.change(TOPIC, "orders", (SET, "retention.ms", "5")) == (
        Error.KAFKA_STORAGE_ERROR,
        "The metadata store refused the change",
    )


def test_the_older_request_forgets_what_it_does_not_name(context: FakeContext) -> None:
    assert context.change(TOPIC, "orders", (SET, "retention.ms", "5"), (SET, "segment.ms", "6")) == (0, None)
    assert context.replace(TOPIC, "orders", segment_ms="7") == (0, None)
    assert context.broker.image.topic_configs["orders"] == {"segment.ms": "7"}
    assert context.replace(TOPIC, "orders") == (0, None)
    assert context.broker.image.topic_configs["orders"] == {}


# ---- rights


def test_what_a_client_may_not_see_or_change(context: FakeContext) -> None:
    context.refused = {
        (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"),
        (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "orders"),
        (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "kafka-cluster"),
        (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster"),
        (Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g"),
        (Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"),
    }
    refusals = {
        (TOPIC, "orders"): Error.TOPIC_AUTHORIZATION_FAILED,
        (BROKER, "1"): Error.CLUSTER_AUTHORIZATION_FAILED,
        (ConfigResourceType.BROKER_LOGGER, "1"): Error.CLUSTER_AUTHORIZATION_FAILED,
        (ConfigResourceType.GROUP, "g"): Error.GROUP_AUTHORIZATION_FAILED,
    }
    for (resource_type, name), error in refusals.items():
        result = context.describe(resource_type, name)
        assert (result.error_code, result.configs) == (error, [])
        assert context.change(resource_type, name, (SET, "root", "DEBUG"))[0] == error


def test_refused_resources_are_answered_last(context: FakeContext) -> None:
    context.refused = {(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "secret")}
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in ("secret", "orders")]
    request = DescribeConfigsRequest(resources=resources)
    answer = virtual_time.run(describe_configs.handle(request, context))  # type: ignore[arg-type]
    assert [row.resource_name for row in answer.results] == ["orders", "secret"]


# ---- loggers


def test_a_level_is_changed_until_the_broker_stops(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind, name = ConfigResourceType.BROKER_LOGGER, quiet_logger.name
    assert context.change(kind, "1", (SET, name, "TRACE"), validate_only=True) == (0, None)
    assert quiet_logger.level == logging.NOTSET
    assert context.change(kind, "1", (SET, name, "TRACE")) == (0, None)
    assert context.entry(kind, "1", name).value == "TRACE"
    assert context.change(kind, "1", (DELETE, name, None)) == (0, None)
    assert quiet_logger.level == logging.NOTSET


def test_a_package_stands_for_the_loggers_below_it(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind = ConfigResourceType.BROKER_LOGGER
    assert context.change(kind, "1", (SET, "ottla.test", "DEBUG")) == (0, None)
    assert quiet_logger.getEffectiveLevel() == logging.DEBUG
    assert context.entry(kind, "1", quiet_logger.name).value == "DEBUG"
    assert context.change(kind, "1", (DELETE, "ottla.test", None)) == (0, None)


def test_one_bad_logger_leaves_the_others_alone(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind = ConfigResourceType.BROKER_LOGGER
    code, message = context.change(kind, "1", (SET, quiet_logger.name, "DEBUG"), (SET, "nobody", "DEBUG"))
    assert (code, message) == (Error.INVALID_CONFIG, "Logger nobody does not exist!")
    assert quiet_logger.level == logging.NOTSET


def test_loggers_of_other_packages_are_hidden(context: FakeContext) -> None:
    logging.getLogger("asyncio")
    names = [entry.name for entry in context.describe(ConfigResourceType.BROKER_LOGGER, "1").configs]
    assert "root" in names
    assert all(name == "root" or name.startswith("ottla.") for name in names)
