"""Environment variables as settings."""

from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.environment import key_of_variable, settings_of_container
from ottla.base.settings import SettingsError

# What a developer's machine, a container and Kubernetes may hold without meaning a setting.
HARMLESS = {
    "CUSTOM_INIT_SCRIPT": "true",
    "HOME": "/root",
    "KAFKA_DEBUG": "y",
    "KAFKA_GC_LOG_OPTS": "-Xlog",
    "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G",
    "KAFKA_HOME": "/opt/kafka",
    "KAFKA_JMX_OPTS": "-Dcom.sun.management.jmxremote",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-server",
    "KAFKA_LOG4J_OPTS": "-Dlog4j2.configurationFile=x",
    "KAFKA_OPTS": "-Dx=y",
    "KAFKA_PORT": "tcp://10.0.0.7:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.7",
    "KAFKA_SERVICE_HOST": "10.0.0.7",
    "KAFKA_VERSION": "4.3.1",
    "ALLOW_PLAINTEXT_LISTENER": "yes",
}


def load(environment: dict[str, str], *, is_container: bool = True, **overrides: str) -> BrokerSettings:
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    quiet = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092"}
    return load_broker_settings(None, named, environment=quiet | environment, is_container=is_container)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_HOURS", "log.retention.hours"),
        ("KAFKA_CFG_LOG_RETENTION_HOURS", "log.retention.hours"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_MAX_CONNECTIONS", "listener.name.sasl_ssl.max.connections"),
        ("KAFKA_CFG_LISTENER_NAME_SASL_PLAINTEXT_MAX_CONNECTIONS", "listener.name.sasl_plaintext.max.connections"),
        ("KAFKA_CFG_SASL_ENABLED_MECHANISMS", "sasl.enabled.mechanisms"),
    ],
)
def test_underscores_become_what_the_images_make_of_them(variable: str, key: str) -> None:
    assert key_of_variable(variable) == key


def test_variables_win_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1\nnum.partitions=1\nlog.retention.hours=1\nbroker.rack=file\n")
    environment = {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_LOG_RETENTION_HOURS": "2"}
    settings = load_broker_settings(file, {"num.partitions": "3"}, environment=environment, is_container=True)
    assert (settings.num_partitions, settings.log_retention_hours, settings.broker_rack) == (3, 2, "file")


def test_the_longer_prefix_wins_whatever_the_order() -> None:
    pairs = {"KAFKA_CFG_NUM_PARTITIONS": "5", "KAFKA_NUM_PARTITIONS": "4"}
    assert load(pairs).num_partitions == load(dict(reversed(pairs.items()))).num_partitions == 5


def test_without_options_nothing_changes() -> None:
    settings = load({"KAFKA_NUM_PARTITIONS": "7"}, is_container=False, listeners="PLAINTEXT://127.0.0.1:1")
    assert (settings.num_partitions, settings.warnings) == (1, ())


def test_what_start_scripts_and_kubernetes_set_changes_nothing() -> None:
    settings = load(HARMLESS)
    assert settings.warnings == ()
    assert dict(settings.explicit) == {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "node.id": "1",
        "broker.id": "1",
    }


def test_an_empty_variable_is_not_set() -> None:
    assert settings_of_container({"KAFKA_NUM_PARTITIONS": "", "KAFKA_BROKER_RACK": ""}) == []


def test_a_name_that_is_no_key_is_reported_and_ignored() -> None:
    settings = load({"KAFKA_LOG_RETENTION_HOUR": "5", "KAFKA_QQQQ_ZZZZ": "secret"})
    hint = "did you mean log.retention.hours?"
    assert settings.warnings == (
        f"environment variable KAFKA_LOG_RETENTION_HOUR: no key is called log.retention.hour, ignored: {hint}",
        "environment variable KAFKA_QQQQ_ZZZZ: no key is called qqqq.zzzz, ignored",
    )
    assert "qqqq.zzzz" not in settings.texts


def test_a_bad_value_names_the_variable() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"KAFKA_NUM_PARTITIONS": "many"})
    assert str(caught.value).startswith("environment variable KAFKA_NUM_PARTITIONS: Invalid value many")


def test_old_names_work_too() -> None:
    settings = load({"KAFKA_BROKER_ID": "7", "KAFKA_ADVERTISED_HOST_NAME": "10.0.0.1", "KAFKA_ADVERTISED_PORT": "99"})
    assert settings.node_id == 7
    assert [str(listener) for listener in settings.advertised_listeners] == ["PLAINTEXT://10.0.0.1:99"]
    assert [warning for warning in settings.warnings if "KAFKA_ADVERTISED_HOST_NAME" in warning]


@pytest.mark.parametrize(
    ("line", "variable", "key", "value"),
    [
        ("node.id=1", "KAFKA_BROKER_ID", "node.id", "5"),
        ("log.dirs=/a", "KAFKA_LOG_DIR", "log.dirs", "5"),
        ("advertised.listeners=PLAINTEXT://a:1", "KAFKA_ADVERTISED_HOST_NAME", "advertised.listeners", "5"),
    ],
)
def test_another_name_of_the_same_key_wins_over_the_file(
    tmp_path: Path, line: str, variable: str, key: str, value: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:1\n{line}\n")
    settings = load_broker_settings(file, environment={variable: value}, is_container=True)
    attribute = getattr(settings, settings.keys[key].attribute)
    assert value in str(attribute)


def test_the_port_of_jmx_is_that_of_the_metrics() -> None:
    assert load({"JMX_PORT": "9999"}).ottla_metrics_port == 9999
    assert load({"JMX_PORT": "9999", "KAFKA_JMX_PORT": "9998"}).ottla_metrics_port == 9998
    assert load({"JMX_PORT": "9999", "KAFKA_OTTLA_METRICS_PORT": "9997"}).ottla_metrics_port == 9997
    script = load({"JMX_PORT": "9999"}, is_container=False, listeners="PLAINTEXT://127.0.0.1:1")
    assert script.ottla_metrics_port == 9999, "Kafka's own start script reads it too"


def test_the_log_level_of_the_images_is_taken() -> None:
    assert load({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN"}).ottla_log_level == "WARN"
