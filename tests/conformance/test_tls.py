"""Listeners over TLS as clients meet them: librdkafka, kafka-python, aiokafka, Apache Kafka's tools and ours.

One broker has four listeners side by side: plain, TLS, TLS with client certificates, TLS with a login.
"""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from tests.certificates import PASSWORD, Authority, Identity
from tests.conformance.java_tools import JavaTools
from tests.conformance.waiting import eventually, first_error
from tests.conftest import Broker, BrokerFactory, free_port

pytestmark = pytest.mark.needs_ottla
WAIT_SECONDS = 30
RECORDS = 500
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Scene:
    """An authority, what it has signed, and a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.server = self.authority.issue("broker", is_rsa=True)
        self.alice = self.authority.issue("alice", is_rsa=True)
        self.plain, self.tls, self.mutual, self.sasl = (f"127.0.0.1:{free_port()}" for _ in range(4))
        self.trusted = self.authority.certificate_pem(folder / "ca.pem")
        self.own = self.alice.pem(folder / "alice.pem")
        self.broker = Broker(folder / "broker", self.settings())

    def settings(self) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://{self.plain},SSL://{self.tls},MUTUAL://{self.mutual},SASL_SSL://{self.sasl}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
            "ssl.client.auth": "requested",  # not on SASL_SSL, where the login names the principal
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_alice="secret of alice";',
            "ssl.keystore.location": self.server.pem(self.folder / "server.pem"),
            "ssl.truststore.location": self.trusted,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "listener.name.mutual.ssl.keystore.location": self.server.jks(self.folder / "server.jks"),
            "listener.name.mutual.ssl.keystore.password": PASSWORD,
            "group.initial.rebalance.delay.ms": "0",
        }

    def librdkafka(self, address: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": self.trusted,
            "log_level": 0,
            **more,
        }

    def with_certificate(self, who: Identity) -> dict[str, str]:
        return {"ssl.certificate.pem": who.chain_pem, "ssl.key.pem": who.key_pem()}

    def properties(self, **more: str) -> str:
        """A file for --command-config, with stores as Java makes them."""
        lines = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.folder / "trusted.jks"),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": str(self.folder / "alice.p12"),
            "ssl.keystore.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        if not (self.folder / "trusted.jks").exists():
            self.authority.trust_store(self.folder / "trusted.jks", "JKS")
            self.alice.pkcs12(self.folder / "alice.p12")
        path = self.folder / f"client-{len(list(self.folder.iterdir()))}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        path.chmod(0o600)
        return str(path)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("tls"))
    try:
        made.broker.start()
        yield made
        made.broker.stop()
    finally:
        made.broker.discard()


def round_trip(settings: dict[str, Any], topic: str) -> None:
    failures: list[Any] = []
    producer = Producer({**settings, "linger.ms": 5})
    values = [b"%d" % number * 2_000 for number in range(RECORDS)]
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(WAIT_SECONDS) == 0
    assert failures == []
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    try:
        while len(found) < RECORDS:
            messages = consumer.consume(RECORDS, WAIT_SECONDS)
            assert messages, "nothing more came"
            found += [message.value() for message in messages]
    finally:
        consumer.close()
    assert found == values


# ---- clients


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_librdkafka_produces_and_consumes(scene: Scene, version: str) -> None:
    suites = {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"} if version == "TLSv1.2" else {}
    round_trip(scene.librdkafka(scene.tls, **suites), f"librdkafka-{version}")


def test_librdkafka_with_a_certificate_of_its_own(scene: Scene) -> None:
    round_trip(scene.librdkafka(scene.mutual, **scene.with_certificate(scene.alice)), "librdkafka-mutual")


def test_a_login_over_tls(scene: Scene) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    round_trip(scene.librdkafka(scene.sasl, **login, **{"sasl.password": "secret of alice"}), "sasl-ssl")
    wrong = first_error(scene.librdkafka(scene.sasl, **login, **{"sasl.password": "x"}))
    assert wrong.code() == KafkaError._AUTHENTICATION
    closed = first_error(scene.librdkafka(scene.sasl))  # TLS alone is no login
    assert closed.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    jaas = f'{LOGIN_MODULE} required username="alice" password="secret of alice";'
    config = scene.properties(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)
    listed = run_tool("kafka-topics.sh", "--bootstrap-server", scene.sasl, "--command-config", config, "--list")
    assert "sasl-ssl" in listed.stdout.splitlines()


def test_kafka_python_produces_and_consumes(scene: Scene) -> None:
    settings = {
        "bootstrap_servers": scene.mutual,
        "security_protocol": "SSL",
        "ssl_cafile": scene.trusted,
        "ssl_certfile": scene.own,
        "ssl_keyfile": scene.own,
    }
    producer = KafkaProducer(**settings)
    sent = [producer.send("kafka-python", b"%d" % number * 500) for number in range(RECORDS)]
    offsets = [future.get(WAIT_SECONDS).offset for future in sent]
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **settings)
    found = [next(consumer).offset for _ in range(RECORDS)]
    consumer.close()
    assert found == offsets == list(range(RECORDS))


def test_apache_kafkas_tools(scene: Scene, java: JavaTools) -> None:
    config = scene.properties()
    for address in (scene.tls, scene.mutual):
        name = f"java-{address.rpartition(':')[2]}"
        server = ("--bootstrap-server", address, "--command-config", config)
        created = java.run("kafka-topics.sh", *server, "--create", "--topic", name)
        assert (created.code, created.out.strip()) == (0, f"Created topic {name}.")
        load = ("--num-records", "2000", "--record-size", "5000", "--throughput", "-1")
        produced = java.run("kafka-producer-perf-test.sh", *server, "--topic", name, *load)
        assert produced.code == 0, produced.err
        wanted = ("--topic", name, "--num-records", "2000", "--timeout", "30000")
        consumed = java.run("kafka-consumer-perf-test.sh", *server, *wanted)
        assert consumed.code == 0, consumed.err
        assert consumed.out.splitlines()[-1].split(", ")[4] == "2000"


def run_tool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, input="hello\n", check=False)


def test_our_tools_take_the_properties_of_java_clients(scene: Scene) -> None:
    config = scene.properties()
    for address in (scene.tls, scene.mutual):
        server = ("--bootstrap-server", address, "--command-config", config)
        name = f"ours-{address.rpartition(':')[2]}"
        assert run_tool("kafka-topics.sh", *server, "--create", "--topic", name).stdout == f"Created topic {name}.\n"
        assert run_tool("kafka-console-producer.sh", *server, "--topic", name).returncode == 0
        read = ("--topic", name, "--from-beginning", "--max-messages", "1")
        assert run_tool("kafka-console-consumer.sh", *server, *read).stdout == "hello\n"
        offsets = run_tool("kafka-get-offsets.sh", *server, "--topic", name)
        assert offsets.stdout == f"{name}:0:1\n"
        listed = run_tool("ottla", "topics", "list", *server)
        assert name in listed.stdout


# ---- what is refused, and what is said


def refusal(scene: Scene, address: str, **properties: str) -> str:
    """What a tool says about a listener, in one line."""
    config = scene.properties(**properties)
    result = run_tool("kafka-topics.sh", "--bootstrap-server", address, "--command-config", config, "--list")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    return (result.stdout + result.stderr).splitlines()[0]


def test_a_broker_whose_authority_is_not_known(scene: Scene) -> None:
    stranger = Authority("Stranger").certificate_pem(scene.folder / "stranger.pem")
    said = refusal(scene, scene.tls, ssl_truststore_location=stranger)
    assert f"no TLS with {scene.tls}: its certificate is refused: " in said


def test_a_broker_of_another_name(scene: Scene) -> None:
    other = f"127.0.0.2:{scene.tls.rpartition(':')[2]}"
    with forwarding(other, scene.tls):
        assert "certificate is not valid for '127.0.0.2'" in refusal(scene, other)
        careless = scene.properties(ssl_endpoint_identification_algorithm="")
        tool = ("kafka-broker-api-versions.sh", "--bootstrap-server", other, "--command-config", careless)
        assert run_tool(*tool).returncode == 0


@contextlib.contextmanager
def forwarding(source: str, target: str) -> Iterator[None]:
    """A port that leads to another address, byte by byte."""
    host, _, port = source.rpartition(":")
    listening = socket.create_server((host, int(port)))
    ends: list[socket.socket] = [listening]

    def copy(left: socket.socket, right: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := left.recv(65536):
                right.sendall(data)
            right.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection((target.rpartition(":")[0], int(target.rpartition(":")[2])))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        for end in ends:
            end.close()


def test_a_client_without_a_certificate_where_one_is_required(scene: Scene) -> None:
    said = refusal(scene, scene.mutual, ssl_keystore_location="")
    assert "wants a certificate of ours" in said
    eve = Authority("Stranger").issue("eve")
    for who in ({}, scene.with_certificate(eve)):
        told = first_error(scene.librdkafka(scene.mutual, **who))
        assert told.code() in (KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)


def test_a_plain_client_at_a_listener_over_tls_and_the_other_way_round(scene: Scene) -> None:
    plain = run_tool("kafka-topics.sh", "--bootstrap-server", scene.tls, "--list")
    assert "Is it a Kafka listener without TLS or login?" in plain.stdout + plain.stderr
    assert "Is it a listener over TLS" in refusal(scene, scene.plain)
    assert eventually(lambda: "does not speak TLS: one of both has the wrong port" in scene.broker.log_text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused(scene: Scene) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    host, _, port = scene.tls.rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_SECONDS) as sock,
        pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
    ):
        old.wrap_socket(sock)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl_truststore_password": "wrong one"}, "the password is wrong, or the file is damaged"),
        ({"ssl_truststore_location": "/no/such/store"}, "cannot read /no/such/store: no such file or directory"),
        ({"ssl_keystore_password": "wrong one"}, "the password is wrong, or the file is damaged"),
        ({"ssl_enabled_protocols": "TLSv1"}, "TLSv1 is not safe and not supported"),
    ],
)
def test_properties_that_cannot_be(scene: Scene, properties: dict[str, str], said: str) -> None:
    config = scene.properties(**properties)
    for tool in ("kafka-topics.sh", "kafka-console-producer.sh"):
        words = ("--list",) if tool == "kafka-topics.sh" else ("--topic", "x")
        if tool == "kafka-console-producer.sh" and "ssl_enabled_protocols" in properties:
            continue  # librdkafka's own affair
        result = run_tool(tool, "--bootstrap-server", scene.tls, "--command-config", config, *words)
        if "/no/such" in said and tool == "kafka-console-producer.sh":
            said = "/no/such/store"  # in librdkafka's words
        assert result.returncode in (1, 2)
        assert said in result.stdout + result.stderr
        assert "Traceback" not in result.stderr


# ---- starts that fail, with one line that names the file and the cause


def failed_start(broker_factory: BrokerFactory, **settings: str) -> str:
    port = free_port()
    broker = broker_factory(start=False, listeners=f"SSL://127.0.0.1:{port}", **settings)
    broker.launch()
    assert broker.wait() == 1
    broker.assert_no_traceback()
    assert not broker.data_directory.exists()  # nothing was touched
    return broker.log_text.splitlines()[-1]


def test_stores_that_cannot_be_used_stop_the_start(broker_factory: BrokerFactory, scene: Scene) -> None:
    folder = scene.folder
    whole = Path(scene.server.pkcs12(folder / "whole.p12")).read_bytes()
    (folder / "half.p12").write_bytes(whole[: len(whole) // 2])
    (folder / "half.jks").write_bytes((folder / "server.jks").read_bytes()[:-30])
    (folder / "empty.pem").write_bytes(b"")
    (folder / "swapped.pem").write_text(scene.alice.key_pem() + scene.server.chain_pem)
    wrong = "the password is wrong, or the file is damaged"
    for name, password, cause in [
        ("none.pem", PASSWORD, "no such file or directory"),
        ("empty.pem", PASSWORD, "is empty"),
        ("swapped.pem", PASSWORD, "the private key does not belong to the certificate"),
        ("whole.p12", "wrong one", wrong),
        ("half.p12", PASSWORD, "cannot be read"),
        ("half.jks", PASSWORD, wrong),
        ("server.jks", "wrong one", wrong),
        ("ca.pem", PASSWORD, "has no private key"),
    ]:
        line = failed_start(broker_factory, ssl_keystore_location=str(folder / name), ssl_keystore_password=password)
        assert line.startswith("ottla broker: listener SSL: "), line
        assert name in line
        assert cause in line
        assert "wrong one" not in line
    assert "needs a certificate: set ssl.keystore.location" in failed_start(broker_factory)
    rules = failed_start(
        broker_factory, ssl_keystore_location=str(folder / "server.pem"), ssl_principal_mapping_rules="RULE:x"
    )
    assert "Invalid rule: RULE:x" in rules


# ---- certificates that change


def shown_certificate(address: str) -> str:
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=WAIT_SECONDS)


def test_a_renewed_certificate_is_shown_without_a_restart(scene: Scene) -> None:
    store = Path(scene.broker.settings["ssl.keystore.location"])
    settings = scene.librdkafka(scene.tls)
    producer = Producer(settings)
    producer.produce("renewed", b"before")
    assert producer.flush(WAIT_SECONDS) == 0
    before = shown_certificate(scene.tls)
    store.write_text("half a fi")
    assert eventually(lambda: "new certificates are not used" in scene.broker.log_text, WAIT_SECONDS)
    assert shown_certificate(scene.tls) == before
    renewed = scene.authority.issue("broker", is_rsa=True, days=20)
    renewed.pem(store.with_suffix(".new"))
    store.with_suffix(".new").rename(store)
    assert eventually(lambda: shown_certificate(scene.tls) != before, WAIT_SECONDS)
    assert shown_certificate(scene.tls) in renewed.chain_pem
    producer.produce("renewed", b"after")  # the old connection goes on
    assert producer.flush(WAIT_SECONDS) == 0
    round_trip(settings, "renewed-2")
    said = "the certificate of listener SSL expires in 20 days: renew it in its file, no restart is needed"
    assert eventually(
        lambda: said in scene.broker.log_text or "expires in 19 days" in scene.broker.log_text, WAIT_SECONDS
    )
