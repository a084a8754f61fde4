"""Command lines of kafka-configs.sh: entities, settings, and errors in Kafka's words."""

from __future__ import annotations

import pytest

from ottla.cli.configs.config_entities import Entities, check_command, config_line
from ottla.cli.configs.quota_entities import legacy_quota_line, parse_credential, quota_line
from ottla.cli.java.options import KafkaOptions, OptionError
from ottla.cli.kafka.configs import OPTIONS, completion_message, parse_added
from ottla.client.configs import Config, Source, Synonym
from ottla.client.quotas import Quota


def command(text: str) -> KafkaOptions:
    return KafkaOptions("kafka-configs.sh", "", OPTIONS, ["--bootstrap-server", "a:1", *text.split()])


@pytest.mark.parametrize(
    ("text", "types", "names"),
    [
        ("--describe --topic t", ["topics"], ["t"]),
        ("--describe --entity-type topics --entity-name t", ["topics"], ["t"]),
        ("--describe --entity-type brokers", ["brokers"], []),
        ("--describe --broker-defaults", ["brokers"], [""]),
        ("--describe --user u --client c", ["clients", "users"], ["c", "u"]),
        (
            "--describe --entity-type users --entity-default --entity-type clients --entity-name c",
            ["users", "clients"],
            ["", "c"],
        ),
    ],
)
def test_an_entity_has_several_spellings(text: str, types: list[str], names: list[str]) -> None:
    assert check_command(command(text)) == Entities(types, names)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--describe", "At least one entity type must be specified"),
        ("--describe --entity-type x", "Invalid entity type x, the entity type must be one of topics, clients, users"),
        ("--describe --entity-type topics --entity-type topics", "Duplicate entity type.s. specified: topics"),
        ("--describe --entity-type topics --entity-type brokers", "Only 'users' and 'clients' entity types may be"),
        ("--describe --broker x", "must be a valid integer broker id, but it is: x"),
        ("--describe --entity-type topics --entity-default", "--entity-default must not be specified with --describe"),
        ("--describe --entity-type broker-loggers", "An entity name must be specified with --describe of"),
        ("--alter --entity-type topics", "An entity name must be specified with --alter of topics"),
        ("--alter --entity-type brokers --add-config a=1", "An entity-name or default entity must be specified"),
        ("--alter --topic t", "At least one of --add-config, --add-config-file, or --delete-config must be"),
        ("--alter --topic t --add-config a=1 --add-config-file f", "Only one of --add-config or --add-config-file"),
        ("--describe --topic t --entity-name u", "should not be used in conjunction with specific entity flags"),
    ],
)
def test_contradictions_are_rejected_in_kafkas_words(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_command(command(text))


def test_settings_are_separated_by_commas_outside_of_brackets() -> None:
    assert parse_added("a=1,b=[2,3],c=") == {"a": "1", "b": "2,3", "c": ""}
    assert parse_added("SCRAM-SHA-256=[iterations=8192,password=x]") == {"SCRAM-SHA-256": "iterations=8192,password=x"}
    for text in ("a", "a=1=2", "a=1,b"):
        with pytest.raises(OptionError, match="Invalid entity config"):
            parse_added(text)


def test_a_setting_is_one_line() -> None:
    synonyms = (Synonym("a", "1", Source.DYNAMIC_TOPIC_CONFIG), Synonym("log.a", None, Source.DEFAULT_CONFIG))
    shown = config_line(Config("a", None, 1, True, False, synonyms))
    assert shown == "  a=null sensitive=true synonyms={DYNAMIC_TOPIC_CONFIG:a=1, DEFAULT_CONFIG:log.a=null}"


def test_a_quota_is_one_line() -> None:
    quota = Quota({"client-id": None, "user": "u"}, {"consumer_byte_rate": 5.0})
    assert quota_line(quota) == "Quota configs for user-principal 'u', the default client-id are consumer_byte_rate=5.0"


def test_quotas_have_the_legacy_format_with_zookeeper() -> None:
    quota = Quota({"client-id": None, "user": "u"}, {"consumer_byte_rate": 1024.0, "request_percentage": 0.5})
    line = "Configs for user-principal 'u', default client-id are consumer_byte_rate=1024,request_percentage=0.5"
    assert legacy_quota_line(quota) == line
    assert completion_message(Entities(["users", "clients"], ["u", "c"]), True) == (
        "Completed Updating config for entity: user-principal 'u', client-id 'c'."
    )
    assert (
        completion_message(Entities(["users"], [""]), True)
        == "Completed Updating config for entity: default user-principal."
    )
    assert (
        completion_message(Entities(["users"], [""]), False)
        == "Completed updating default config for users in the cluster."
    )


def test_passwords_have_iterations() -> None:
    assert parse_credential("SCRAM-SHA-256", "iterations=8192,password=a,b=c") == ("SCRAM-SHA-256", 8192, b"a,b=c")
    assert parse_credential("SCRAM-SHA-512", "password=x").iterations == 4096
    for text, words in (
        ("x", "Invalid credential property"),
        ("iterations=10,password=x", "less than the minimum 4096"),
    ):
        with pytest.raises(OptionError, match=words):
            parse_credential("SCRAM-SHA-256", text)
