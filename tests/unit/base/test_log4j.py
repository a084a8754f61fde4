"""Kafka's logging files, as far as they can be followed."""

from pathlib import Path

import pytest

from ottla.base.environment import java_options
from ottla.base.log4j import parse_log4j, read_log4j

PROPERTIES = """
log4j.rootLogger=INFO, stdout, kafkaAppender
log4j.appender.kafkaAppender.File=${kafka.logs.dir}/server.log
log4j.logger.kafka=DEBUG
log4j.logger.kafka.controller=TRACE, controllerAppender
log4j.logger.org.apache.zookeeper=INFO
"""
YAML = """
Configuration:
  Properties:
    Property:
      - name: "kafka.logs.dir"
        value: "."
  Appenders:
    RollingFile:
      - name: KafkaAppender
        fileName: "${sys:kafka.logs.dir}/server.log"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: kafka.network
        level: DEBUG
      - name: org.apache.kafka.controller
        level: "error"
        additivity: false
"""


def test_the_older_properties_give_levels() -> None:
    wishes = parse_log4j(PROPERTIES, ".properties")
    assert (wishes.root_level, dict(wishes.levels)) == ("DEBUG", {"ottla.controller": "TRACE"})
    assert wishes.warnings == ("log4j: no logger here for org.apache.zookeeper",)


def test_the_newer_properties_give_levels() -> None:
    text = "rootLogger.level=warn\nlogger.a.name=kafka.log\nlogger.a.level=debug\n"
    wishes = parse_log4j(text, ".properties")
    assert (wishes.root_level, dict(wishes.levels)) == ("WARN", {"ottla.storage": "DEBUG"})


def test_yaml_gives_levels() -> None:
    wishes = parse_log4j(YAML, ".yaml")
    assert wishes.root_level == "WARN"
    assert dict(wishes.levels) == {"ottla.network": "DEBUG", "ottla.controller": "ERROR"}


def test_java_options_are_taken_apart() -> None:
    assert java_options('-Da=b "-Dkafka.logs.dir=/var/my logs" -Xmx1g -Dc') == {
        "a": "b",
        "kafka.logs.dir": "/var/my logs",
        "c": "",
    }
    assert java_options("-Da='unclosed") == {"a": "'unclosed"}


def test_the_variable_names_a_file_and_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "log4j2.yaml"
    path.write_text(YAML)
    options = f"-Dlog4j2.configurationFile=file:{path} -Dkafka.logs.dir=/var/log/kafka"
    wishes = read_log4j({"KAFKA_LOG4J_OPTS": options})
    assert (wishes.folder, wishes.root_level) == ("/var/log/kafka", "WARN")


@pytest.mark.parametrize("name", ["gone.yaml", "log4j.xml"])
def test_what_cannot_be_followed_is_one_warning(tmp_path: Path, name: str) -> None:
    (tmp_path / "log4j.xml").write_text("<Configuration/>")
    wishes = read_log4j({"KAFKA_LOG4J_OPTS": f"-Dlog4j.configuration=file:{tmp_path / name}"})
    assert len(wishes.warnings) == 1
    assert name in wishes.warnings[0]
    assert wishes.root_level is None
