"""schema-registry.properties, key by key."""

from typing import Any

import pytest

from ottla.registry.config import ConfigError, RegistryConfig, read_config

BASE = RegistryConfig("127.0.0.1:9092")
READ: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({"listeners": "http://0.0.0.0:8081"}, {"host": "0.0.0.0", "port": 8081}),
    ({"listeners": "http://:9000,https://:9001"}, {"host": "0.0.0.0", "port": 9000}),
    ({"listeners": "http://[::1]:8085"}, {"host": "::1", "port": 8085}),
    ({"port": "8090"}, {"port": 8090}),
    ({"kafkastore.bootstrap.servers": "PLAINTEXT://a:1, SASL_SSL://b:2,c:3"}, {"bootstrap": "a:1,b:2,c:3"}),
    ({"kafkastore.topic": "_other"}, {"topic": "_other"}),
    ({"kafkastore.topic.replication.factor": "1"}, {"replication_factor": 1}),
    ({"kafkastore.timeout.ms": "500"}, {"timeout_ms": 500}),
    ({"kafkastore.init.timeout.ms": "1000"}, {"start_timeout_ms": 1000}),
    ({"schema.compatibility.level": "full_transitive"}, {"default_level": "FULL_TRANSITIVE"}),
    ({"avro.compatibility.level": "none"}, {"default_level": "NONE"}),
    ({"mode.mutability": "false"}, {"has_mode_changes": False}),
    ({"schema.registry.group.id": "mine"}, {"group": "mine"}),
    ({"leader.eligibility": "false"}, {"is_eligible": False}),
    ({"host.name": "me"}, {"advertised_host": "me"}),
    (
        {
            "kafkastore.security.protocol": "SASL_SSL",
            "kafkastore.sasl.mechanism": "PLAIN",
            "kafkastore.sasl.jaas.config": "x",
            "kafkastore.ssl.truststore.location": "/t",
        },
        {
            "properties": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "x",
                "ssl.truststore.location": "/t",
            }
        },
    ),
    ({"debug": "true", "kafkastore.write.max.retries": "5"}, {"unknown": ()}),
    ({"zzz": "1", "authentication.method": "BASIC"}, {"unknown": ("authentication.method", "zzz")}),
]
REFUSED = [
    ({"listeners": "https://:8081"}, "only http"),
    ({"listeners": "http://x:port"}, "not an address"),
    ({"listeners": "8081"}, "only http"),
    ({"kafkastore.bootstrap.servers": "FTP://a:1"}, "unknown protocol"),
    ({"schema.compatibility.level": "some"}, "is not a level"),
    ({"kafkastore.topic.replication.factor": "many"}, "not a valid number"),
    ({"mode.mutability": "maybe"}, "true or false"),
]


@pytest.mark.parametrize(("given", "expected"), READ)
def test_what_is_read(given: dict[str, str], expected: dict[str, Any]) -> None:
    config = read_config(given, BASE)
    for name in BASE.__slots__:
        assert getattr(config, name) == expected.get(name, getattr(BASE, name)), name


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_makes_no_sense(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_config(given, BASE)
