"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs as functions, without a socket.

tests/conformance compares the error messages with Apache Kafka; these tests need a fake broker.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import virtual_time

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.configs.config_entries import Source
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
    """Runs decisions on an image, or fails like a broken store."""

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
    membership = None
    security_changes = None
    workers = None

    def __init__(self, settings: BrokerSettings) -> None:
        topic = TopicImage("orders", uuid.uuid4(), ())
        self.controller = FakeController(MetadataImage(topics={"orders": topic}, topic_configs={"orders": {}}))
        self.settings = settings

    @property
    def image(self) -> MetadataImage:
        return self.controller.image


class FakeContext:
    """One request to a fake broker; `refused` lists the denied operations."""

    is_forwarded = False

    def __init__(self, **texts: str) -> None:
        named = {name.replace("_", "."): text for name, text in texts.items()}
        self.broker = FakeBroker(load_broker_settings(None, {"listeners": "PLAINTEXT://127.0.0.1:9092", **named}))
        self.refused: set[tuple[Operation, ResourceType, str]] = set()

    def is_authorized(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) not in self.refused

    is_visible = is_granted = is_authorized

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


def test_a_static_value_is_between_dynamic_values_and_the_default() -> None:
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


def test_static_hours_appear_in_a_topics_value_but_not_as_its_source() -> None:
    """Kafka omits sources before the finest key, and therefore reports a default."""
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


def test_documentation_is_ottlas_own_text(context: FakeContext) -> None:
    (entry,) = context.describe(BROKER, "1", "num.partitions", documentation=True).configs
    assert entry.documentation == BrokerSettings.num_partitions.note


@pytest.mark.parametrize(("broker", "source"), [("1", Source.DYNAMIC_BROKER), ("", Source.DYNAMIC_DEFAULT_BROKER)])
def test_a_name_that_plug_ins_use_was_refused(
    context: FakeContext, caplog: pytest.LogCaptureFixture, broker: str, source: Source
) -> None:
    """As in Apache Kafka 4.3.1: it is stored, and shown without its value and type."""
    for name in ("my.plugin.key", "my plug=in,key\n", "log.retention.msec"):
        assert context.change(BROKER, broker, (SET, name, "pa55")) == (0, None)
        for asked in dict.fromkeys((broker, "1")):
            entry = context.entry(BROKER, asked, name)
            assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_type) == (None, True, True, 0)
            assert (entry.config_source, synonyms(entry)) == (source, [(name, None, source)])
    assert "'log.retention.msec' of " in caplog.text
    assert "did you mean log.retention.ms?" in caplog.text
    assert "\\n" in caplog.text, "a name cannot inject log lines"
    assert "pa55" not in caplog.text
    assert context.change(BROKER, broker, (DELETE, "my.plugin.key", None)) == (0, None)
    assert context.describe(BROKER, broker, "my.plugin.key").configs == []


def test_unknown_listener_names_belong_to_one_broker(context: FakeContext) -> None:
    key = "listener.name.plaintext.no.such.key"
    assert context.change(BROKER, "1", (SET, key, "x")) == (0, None)
    sentence = "Cannot update these configs at default cluster level, broker id must be specified"
    assert context.change(BROKER, "", (SET, key, "x")) == (Error.INVALID_REQUEST, f"{sentence}: [{key}]")
    assert context.change(BROKER, "1", (SET, "", "x")) == (Error.INVALID_REQUEST, "Config name must not be empty")


def test_unknown_topic_settings_are_refused(context: FakeContext) -> None:
    answer = context.change(TOPIC, "orders", (SET, "my.plugin.key", "x"))
    assert answer == (Error.INVALID_CONFIG, "Unknown topic config name: my.plugin.key")


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.plaintext.sasl.oauthbearer.jwks.endpoint.url",
        "sasl.server.callback.handler.class",
        "metric.reporters",
        "config.providers",
        "listeners",
        "log.dirs",
        "zookeeper.connect",
    ],
)
@pytest.mark.parametrize("broker", ["1", ""])
def test_only_dynamic_keys_can_be_changed(context: FakeContext, broker: str, key: str) -> None:
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
def test_file_and_class_names_are_refused_with_a_reason(context: FakeContext, key: str, words: str) -> None:
    error, message = context.change(BROKER, "1", (SET, key, "x"))
    assert error is Error.INVALID_REQUEST
    assert words in str(message)
    assert context.broker.image.broker_configs == {}


def test_directories_are_cordoned_per_broker_only(context: FakeContext) -> None:
    assert context.change(BROKER, "", (SET, "cordoned.log.dirs", "")) == (
        Error.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
    )
    assert context.change(BROKER, "1", (SET, "cordoned.log.dirs", "")) == (0, None)


def test_an_unknown_operation_is_refused(context: FakeContext) -> None:
    code, message = context.change(TOPIC, "orders", (9, "retention.ms", "5"))
    assert (code, message) == (Error.INVALID_REQUEST, "Unknown operation type 9 for config key: retention.ms")


def test_groups_and_subscriptions_exist_while_they_have_settings(context: FakeContext) -> None:
    group, metrics = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
    assert context.change(group, "g", (SET, "consumer.session.timeout.ms", "46000")) == (0, None)
    assert context.change(metrics, "m", (SET, "interval.ms", "100"), (SET, "metrics", "a, b")) == (0, None)
    assert context.broker.image.group_configs == {"g": {"consumer.session.timeout.ms": "46000"}}
    assert context.change(group, "g", (DELETE, "consumer.session.timeout.ms", None)) == (0, None)
    assert context.change(metrics, "m", (DELETE, "interval.ms", None)) == (0, None)
    assert context.broker.image.group_configs == {}
    assert context.broker.image.client_metrics_configs == {"m": {"metrics": "a, b"}}


def test_a_failing_store_is_reported_for_each_resource(context: FakeContext) -> None:
    context.broker.controller.failure = KafkaError(Error.KAFKA_STORAGE_ERROR, "The metadata store refused the change")
    assert context.change(TOPIC, "orders", (SET, "retention.ms", "5")) == (
        Error.KAFKA_STORAGE_ERROR,
        "The metadata store refused the change",
    )


def test_alter_configs_resets_omitted_settings(context: FakeContext) -> None:
    assert context.change(TOPIC, "orders", (SET, "retention.ms", "5"), (SET, "segment.ms", "6")) == (0, None)
    assert context.replace(TOPIC, "orders", segment_ms="7") == (0, None)
    assert context.broker.image.topic_configs["orders"] == {"segment.ms": "7"}
    assert context.replace(TOPIC, "orders") == (0, None)
    assert context.broker.image.topic_configs["orders"] == {}


# ---- authorization


def test_unauthorized_resources_are_neither_described_nor_changed(context: FakeContext) -> None:
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


def test_refused_resources_come_last(context: FakeContext) -> None:
    context.refused = {(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "secret")}
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in ("secret", "orders")]
    request = DescribeConfigsRequest(resources=resources)
    answer = virtual_time.run(describe_configs.handle(request, context))  # type: ignore[arg-type]
    assert [row.resource_name for row in answer.results] == ["orders", "secret"]


# ---- loggers


def test_a_log_level_is_changed_until_the_broker_stops(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind, name = ConfigResourceType.BROKER_LOGGER, quiet_logger.name
    assert context.change(kind, "1", (SET, name, "TRACE"), validate_only=True) == (0, None)
    assert quiet_logger.level == logging.NOTSET
    assert context.change(kind, "1", (SET, name, "TRACE")) == (0, None)
    assert context.entry(kind, "1", name).value == "TRACE"
    assert context.change(kind, "1", (DELETE, name, None)) == (0, None)
    assert quiet_logger.level == logging.NOTSET


def test_a_package_covers_the_loggers_below_it(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind = ConfigResourceType.BROKER_LOGGER
    assert context.change(kind, "1", (SET, "ottla.test", "DEBUG")) == (0, None)
    assert quiet_logger.getEffectiveLevel() == logging.DEBUG
    assert context.entry(kind, "1", quiet_logger.name).value == "DEBUG"
    assert context.change(kind, "1", (DELETE, "ottla.test", None)) == (0, None)


def test_an_invalid_logger_leaves_the_others_unchanged(context: FakeContext, quiet_logger: logging.Logger) -> None:
    kind = ConfigResourceType.BROKER_LOGGER
    code, message = context.change(kind, "1", (SET, quiet_logger.name, "DEBUG"), (SET, "unknown", "DEBUG"))
    assert (code, message) == (Error.INVALID_CONFIG, "Logger unknown does not exist!")
    assert quiet_logger.level == logging.NOTSET


def test_loggers_of_other_packages_are_hidden(context: FakeContext) -> None:
    logging.getLogger("asyncio")
    names = [entry.name for entry in context.describe(ConfigResourceType.BROKER_LOGGER, "1").configs]
    assert "root" in names
    assert all(name == "root" or name.startswith("ottla.") for name in names)
