"""The page about settings, and that every key has what the page needs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.settings_page import settings_page

from ottla.base.broker_settings import BrokerSettings
from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys
from ottla.base.settings import Settings
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "settings.md"
# The controller finds these in the metadata, of every broker: no broker reads its own.
READ_IN_IMAGE = {"ottla.maintenance.until.ms"}
# These act at the start alone: they decide whether the broker can run at all.
READ_BY_CHECKS = {
    "password.encoder.cipher.algorithm",
    "password.encoder.iterations",
    "password.encoder.key.length",
    "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret",
    "ottla.metrics.insecure",
    "broker.id",
    "broker.id.generation.enable",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "log.dir",
    "process.roles",
    "security.inter.broker.protocol",
}
# Named in the sources of the feature list: each must be accepted.
WANTED = (
    "broker.id",
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "num.network.threads",
    "num.io.threads",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.request.max.bytes",
    "auto.create.topics.enable",
    "delete.topic.enable",
    "num.partitions",
    "message.max.bytes",
    "default.replication.factor",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "log.dirs",
    "log.roll.hours",
    "log.segment.bytes",
    "log.cleanup.policy",
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.check.interval.ms",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "min.insync.replicas",
    "log.dir",
    "sasl.kerberos.service.name",
)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == settings_page(), "run: python -m tests.settings_page > docs/settings.md"


@pytest.mark.parametrize("table", [BrokerSettings, TopicKeys, GroupResourceKeys, ClientMetricsKeys])
def test_every_key_says_what_it_does(table: type[Settings]) -> None:
    for key in table.keys.values():
        assert key.note[0].isupper(), key
        assert key.note.endswith("."), key
        assert "|" not in key.note, key


def test_every_key_stands_on_the_page() -> None:
    page = settings_page()
    for table in (BrokerSettings, TopicKeys, GroupResourceKeys, ClientMetricsKeys):
        assert [name for name in table.keys if f"`{name}`" not in page] == []


def test_every_default_passes_its_own_check() -> None:
    for table in (BrokerSettings, TopicKeys, GroupResourceKeys, ClientMetricsKeys):
        for key in table.keys.values():
            shown = key.display_value(None)
            if shown is not None:
                assert key.display_value(shown) == shown


def test_all_keys_of_the_sources_are_known() -> None:
    assert [name for name in WANTED if name not in BrokerSettings.keys] == []


def test_a_topic_key_that_acts_has_a_broker_key_that_acts() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        for broker_key, _ in synonyms:
            assert (TopicKeys.keys[name].unused_reason is None) == (
                BrokerSettings.keys[broker_key].unused_reason is None
            ), name


def test_a_key_acts_if_and_only_if_something_reads_it() -> None:
    """A key without `unused` must be read by some module, and one with it must not."""
    read = {name for path in source_files() for name in re.findall(r"\.(\w+)", path.read_text())}
    for path in source_files():  # what one listener may have for itself is asked for by its name
        if {"broker", "security"} & set(
            path.relative_to(ROOT).parts
        ) and path.name != "secure_folder.py":  # which writes settings
            read |= {name.replace(".", "_") for name in re.findall(r'"([a-z]+(?:\.[a-z]+)+)"', path.read_text())}
    by_topics = {broker_key for synonyms in BROKER_SYNONYMS.values() for broker_key, _ in synonyms}
    for name, key in BrokerSettings.keys.items():
        if name in by_topics or name in READ_BY_CHECKS | READ_IN_IMAGE:
            continue
        assert (key.attribute in read) == (key.unused_reason is None), name


def source_files() -> Iterator[Path]:
    """Everything but the declarations and checks of the settings themselves."""
    package = ROOT / "src" / "ottla"
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] != "base" and path.name != "config_changes.py":
            yield path
