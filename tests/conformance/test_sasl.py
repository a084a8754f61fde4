"""Real clients log in: librdkafka, kafka-python, aiokafka and Java, with each mechanism, rightly and wrongly."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from tests.conformance.java_tools import JavaTools
from tests.conformance.queries import queried_values
from tests.conftest import FOREIGN_BOOTSTRAP

from ottla.base.properties import read_properties
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.quotas import ScramUpsertion, alter_scram
from ottla.pipelines.sinks.at_least_once import producer_settings, send_batches
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic
from ottla.security.sasl.client_authenticator import client_login
from ottla.testing.broker import Broker

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")

PASSWORD = "admin-secret123"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WAIT_SECONDS = 20
LIVES_SECONDS = 4.0  # three of them


class Secured(NamedTuple):
    """A broker with an open listener and one that asks for a login."""

    broker: Broker
    address: str
    key: Any

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        whole = {"sub": "alice", "iss": "tests", "aud": "kafka", "iat": now, "exp": now + 300, **claims}
        return jwt.encode(whole, self.key, algorithm="ES256", headers={"kid": "k"})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("sasl")
    key = ec.generate_private_key(ec.SECP256R1())
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    keys = {"keys": [{**json.loads(algorithm.to_jwk(key.public_key())), "kid": "k", "use": "sig"}]}
    (folder / "jwks.json").write_text(json.dumps(keys))
    jaas = folder / "jaas.conf"
    jaas.write_text(f'KafkaServer {{\n  {PLAIN}\n    user_admin="{PASSWORD}"\n    user_alice="a b";\n}};\n')
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reservation.getsockname()[1]}"
        broker = Broker(
            {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/jwks.json",
                "sasl.oauthbearer.expected.issuer": "tests",
                "sasl.oauthbearer.expected.audience": "kafka",
            },
            topics=["t"],
            environment={"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"},
        )
        listeners = f"{broker.settings['listeners']},CLIENTS://{address}"
        protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
        broker.settings |= {"listeners": listeners, "listener.security.protocol.map": protocols}
        with broker:
            with Client(broker.bootstrap_servers) as client:
                alter_scram(client, "admin", [ScramUpsertion(name, 4096, PASSWORD.encode()) for name in SCRAMS], [])
            yield Secured(broker, address, key)
            assert PASSWORD not in broker.logs


def login_of(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "admin",
        "sasl.password": password,
    }


# ---- librdkafka


def librdkafka_round_trip(address: str, value: bytes, **settings: Any) -> None:
    common = {"bootstrap.servers": address, **settings}
    producer = Producer(common)
    producer.produce("t", value)
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer({**common, "group.id": f"g-{value.decode()}", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            message = consumer.poll(1)
            assert time.monotonic() < deadline
            if message is not None and message.error() is None and message.value() == value:
                return
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_librdkafka(secured: Secured, mechanism: str) -> None:
    librdkafka_round_trip(secured.address, mechanism.encode(), **login_of(mechanism))


def test_librdkafka_with_a_token(secured: Secured) -> None:
    def token(_: str) -> tuple[str, float]:
        return secured.token(), time.time() + 300

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    librdkafka_round_trip(secured.address, b"token", **settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_librdkafka_with_a_wrong_password(secured: Secured, mechanism: str) -> None:
    said: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": secured.address,
            **login_of(mechanism, "falsch"),
            "error_cb": lambda error: said.append(str(error)),
            "log_level": 2,
        }
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while not said and time.monotonic() < deadline:
        producer.poll(0.1)
    assert "_AUTHENTICATION" in said[0]
    assert "falsch" not in secured.broker.logs


# ---- kafka-python


def python_login(secured: Secured, mechanism: str) -> dict[str, Any]:
    """As both clients in Python call it."""
    return {
        "bootstrap_servers": secured.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "admin",
        "sasl_plain_password": PASSWORD,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    settings = python_login(secured, mechanism)
    producer = KafkaProducer(**settings)
    try:
        sent = producer.send("t", mechanism.encode()).get(WAIT_SECONDS)
    finally:
        producer.close()
    consumer = KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=WAIT_SECONDS * 1000, **settings)
    try:
        assert any(record.offset == sent.offset for record in consumer)
    finally:
        consumer.close()


def test_kafka_python_with_a_wrong_password(secured: Secured) -> None:
    with pytest.raises(KafkaError):
        KafkaProducer(
            bootstrap_servers=secured.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="admin",
            sasl_plain_password="falsch",
            bootstrap_timeout_ms=1000,
        )


# ---- aiokafka


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_aiokafka(secured: Secured, mechanism: str) -> None:
    settings = python_login(secured, mechanism)

    async def main() -> None:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        try:
            sent = await producer.send_and_wait("t", b"x")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer("t", auto_offset_reset="earliest", group_id=None, **settings)
        await consumer.start()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (await consumer.getone()).offset != sent.offset:
                    pass
        finally:
            await consumer.stop()

    asyncio.run(main())


# ---- Java


def properties_file(folder: Path, mechanism: str, module: str, options: str, **more: str) -> str:
    path = folder / "client.properties"
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={module} {options};"]
    lines += [f"{name.replace('_', '.')}={value}" for name, value in more.items()]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", PLAIN), *((name, SCRAM) for name in SCRAMS)])
def test_java(secured: Secured, java: JavaTools, tmp_path: Path, mechanism: str, module: str) -> None:
    config = properties_file(tmp_path, mechanism, module, f'username="admin" password="{PASSWORD}"')
    words = ("--bootstrap-server", secured.address, "--command-config", config)
    listed = java.run("kafka-topics.sh", *words, "--list")
    assert (listed.code, "t" in listed.out.splitlines()) == (0, True), listed.err
    performed = java.run(
        "kafka-producer-perf-test.sh",
        *("--topic", "t", "--num-records", "10", "--record-size", "10", "--throughput", "-1"),
        *("--bootstrap-server", secured.address, "--command-config", config),
    )
    assert "10 records sent" in performed.out, performed.err
    consumed = java.run(
        "kafka-console-consumer.sh",
        *("--topic", "t", "--from-beginning", "--max-messages", "5", "--bootstrap-server", secured.address),
        *("--command-config", config, "--timeout-ms", str(WAIT_SECONDS * 1000)),
    )
    assert len(consumed.out.splitlines()) == 5, consumed.err


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-512", SCRAM)])
def test_java_with_a_wrong_password(
    secured: Secured, java: JavaTools, tmp_path: Path, mechanism: str, module: str
) -> None:
    config = properties_file(tmp_path, mechanism, module, 'username="admin" password="falsch"')
    refused = java.run("kafka-topics.sh", "--bootstrap-server", secured.address, "--command-config", config, "--list")
    assert refused.code == 1
    assert "SaslAuthenticationException" in refused.out + refused.err or "Authentication failed" in refused.out


def test_java_with_an_unsecured_token_is_refused(secured: Secured, java: JavaTools, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    config = properties_file(tmp_path, "OAUTHBEARER", module, 'unsecuredLoginStringClaim_sub="admin"')
    refused = java.run("kafka-topics.sh", "--bootstrap-server", secured.address, "--command-config", config, "--list")
    assert refused.code == 1
    assert "invalid_token" in refused.out + refused.err


# ---- our own


def test_our_tools_client_with_every_mechanism(secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(secured.token())
    token = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"file://{path}"}
    for properties in (*(login_of(name) for name in ("PLAIN", *SCRAMS)), {**login_of("PLAIN"), **token}):
        with Client(secured.address, login=client_login(properties)) as client:
            assert client.cluster().brokers[0].port == int(secured.address.rpartition(":")[2])


def test_a_query_reads_with_the_same_login(secured: Secured) -> None:
    """The source of pipelines, without Spark around it: our own wire client logs in there too."""
    librdkafka_round_trip(secured.address, b"query", **login_of("PLAIN"))
    assert b"query" in queried_values(secured.address, "t", login_of("SCRAM-SHA-512"))


def test_a_sink_writes_with_the_same_login(secured: Secured) -> None:
    """With Java's names for the login, as the source takes them."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    login["sasl.jaas.config"] = f'{SCRAM} username="admin" password="{PASSWORD}";'
    before = ExactlyOnceTopic("t", secured.address, login).record_count()
    sink = AtLeastOnceTopic("t", secured.address, login)
    target = sink.target()
    rows = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})
    assert send_batches(iter([rows]), producer_settings(sink.client(), target), target) == (2, 0)
    assert ExactlyOnceTopic("t", secured.address, login).record_count() == before + 2
    with pytest.raises(SinkError, match=r"sasl\.jaas\.config"):
        AtLeastOnceTopic("t", secured.address, {**login, "sasl.jaas.config": "nonsense"}).client()


@pytest.mark.parametrize(
    "claims",
    [{"iss": "others"}, {"aud": "others"}, {"exp": 1_600_000_000}, {"sub": ""}],
    ids=lambda claims: next(iter(claims)),
)
def test_tokens_that_are_not_for_us(secured: Secured, tmp_path: Path, claims: dict[str, Any]) -> None:
    path = tmp_path / "token"
    path.write_text(secured.token(**claims))
    token = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"file://{path}"}
    login = client_login({**login_of("PLAIN"), **token})
    with Client(secured.address, login=login) as client, pytest.raises(ClientError, match="invalid_token"):
        client.cluster()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda secured: (secured.address, login_of("PLAIN", "falsch")), "Invalid username or password"),
        (lambda secured: (secured.address, login_of("SCRAM-SHA-512", "falsch")), "due to invalid credentials"),
        (lambda secured: (secured.address, {}), "it closed the connection"),
        (lambda secured: (secured.broker.bootstrap_servers, login_of("PLAIN")), "requires no login"),
    ],
)
def test_our_tools_report_the_cause_of_a_failed_login(
    secured: Secured, make: Callable[[Secured], tuple[str, dict[str, str]]], said: str
) -> None:
    address, properties = make(secured)
    with Client(address, login=client_login(properties)) as client, pytest.raises(ClientError, match=said):
        client.cluster()


# ---- logins that do not last (KIP-368)


def test_clients_log_in_again_before_their_login_is_over(java: JavaTools, tmp_path: Path) -> None:
    """Java repeats the login on its connection, librdkafka too; both go on for several lives of it."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reservation.getsockname()[1]}"
        key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        settings = {
            "sasl.enabled.mechanisms": "PLAIN",
            "connections.max.reauth.ms": "1200",
            key: f'{PLAIN} user_admin="{PASSWORD}";',
        }
        broker = Broker(settings, topics=["t"], ignores_unknown=True)
        broker.settings["listeners"] = f"{broker.settings['listeners']},SASL_PLAINTEXT://{address}"
        config = properties_file(tmp_path, "PLAIN", PLAIN, f'username="admin" password="{PASSWORD}"')
        with broker, ThreadPoolExecutor() as together:
            doing = [
                together.submit(java_goes_on, java, address, config),
                together.submit(librdkafka_goes_on, address),
                together.submit(our_client_goes_on, address),
            ]
            for each in doing:
                each.result()


def java_goes_on(java: JavaTools, address: str, config: str) -> None:
    performed = java.run(
        "kafka-producer-perf-test.sh",
        *("--topic", "t", "--num-records", "200", "--record-size", "10", "--throughput", "50"),
        *("--bootstrap-server", address, "--command-config", config),
    )
    assert "200 records sent" in performed.out, performed.err


def librdkafka_goes_on(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, **login_of("PLAIN"), "log_level": 2})
    deadline = time.monotonic() + LIVES_SECONDS
    while time.monotonic() < deadline:
        producer.produce("t", b"x")
        assert producer.flush(WAIT_SECONDS) == 0
        time.sleep(0.05)


def our_client_goes_on(address: str) -> None:
    with Client(address, login=client_login(login_of("PLAIN"))) as client:
        deadline = time.monotonic() + LIVES_SECONDS
        while time.monotonic() < deadline:
            client.metadata = None
            client.cluster()
            time.sleep(0.2)


def test_users_are_made_listed_and_deleted_by_our_command(secured: Secured, tmp_path: Path) -> None:
    config = properties_file(tmp_path, "SCRAM-SHA-512", SCRAM, f'username="admin" password="{PASSWORD}"')
    tool = [str(Path(sys.executable).with_name("ottla")), "users", "--bootstrap-server", secured.address]

    def run(*words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OTTLA_COMMAND_CONFIG": config}
        return subprocess.run([*tool, *words], input=said, env=environment, capture_output=True, text=True, check=False)

    given = tmp_path / "password"
    given.write_text("first\n")
    assert run("add", "carol", "--password-file", str(given), "--mechanism", "SCRAM-SHA-256").returncode == 0
    carol = {**login_of("SCRAM-SHA-256", "first"), "sasl.username": "carol"}
    with Client(secured.address, login=client_login(carol)) as client:
        client.cluster()
    made = tmp_path / "carol.properties"
    assert run("add", "carol", "--write", str(made)).returncode == 0
    with Client(secured.address, login=client_login(read_properties(made.read_text()))) as client:
        client.cluster()
    rows = json.loads(run("list", "--json").stdout)
    assert {row["mechanism"] for row in rows if row["user"] == "carol"} == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert run("remove", "carol", "--yes").returncode == 0
    gone = run("remove", "carol", "--yes")
    told = "ottla users: there is no user carol with a password: ottla users list\n"
    assert (gone.returncode, gone.stderr) == (1, told)
    with Client(secured.address, login=client_login(carol)) as client, pytest.raises(ClientError, match="failed"):
        client.cluster()


def test_the_logins_of_a_listener_are_not_described(secured: Secured) -> None:
    with Client(secured.broker.bootstrap_servers) as client:
        found = describe_configs(client, Resource.BROKER, ["1"])["1"]
    assert PASSWORD not in str(found)


def test_a_damaged_jaas_file_stops_the_start_and_touches_nothing(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"KafkaServer {{\n  {PLAIN}\n  user_admin=1geheim;\n}};\n")
    properties = tmp_path / "server.properties"
    lines = ("listeners=SASL_PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data", "sasl.enabled.mechanisms=PLAIN")
    properties.write_text("\n".join(lines) + "\n")
    tool = [str(Path(sys.executable).with_name("ottla")), "broker", "--config", str(properties)]
    environment = {**os.environ, "KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}
    ended = subprocess.run(tool, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    said = "line 3: the value of user_admin begins with a digit or a sign: put it in double quotes"
    assert ended.stderr.splitlines()[-1] == f"ottla broker: {jaas}, {said}"
    assert "geheim" not in ended.stderr + ended.stdout
    assert not (tmp_path / "data").exists()
