"""`ottla up --secure`, `ottla users` and secured brokers of tests, used as a beginner would use them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from tests.conformance.test_tools import SECONDS_MAX, command_of, run, start_and_wait
from tests.conformance.waiting import first_error

from ottla.testing import Broker, BrokerError

pytestmark = pytest.mark.needs_ottla


class Secured(NamedTuple):
    """A broker of `ottla up --secure`, and how its administrator reaches it."""

    address: str
    data: Path
    folder: Path
    banner: str

    @property
    def admin(self) -> tuple[str, ...]:
        return self.options("admin.properties")

    def options(self, name: str) -> tuple[str, ...]:
        return ("--bootstrap-server", self.address, "--command-config", str(self.folder / name))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    tool = start_and_wait([*command_of("ottla"), "up", "--secure", "--port", "0", "--data", "data"], folder)
    assert tool.stdout is not None
    banner = []
    while not (line := tool.stdout.readline()).startswith("  ottla acls add"):
        assert line, "the banner ends with the rights of another user"
        banner.append(line)
    yield Secured(tool.address, folder / "data", folder / "data" / "security", "".join(banner))  # type: ignore[attr-defined]
    tool.send_signal(signal.SIGINT)
    tool.communicate(timeout=SECONDS_MAX)
    assert tool.returncode == 0


def test_the_lines_of_the_banner_work_as_they_stand(secured: Secured) -> None:
    assert run("ottla", "topics", "create", "orders", *secured.admin).code == 0
    lines = secured.banner.splitlines()
    settings = " ".join(lines[lines.index("kafka-python:") + 1 :][:2])
    producer = KafkaProducer(bootstrap_servers=secured.address, **eval(f"dict({settings})"))
    assert producer.send("orders", b"from kafka-python").get(timeout=30).offset == 0
    producer.close()
    settings = " ".join(lines[lines.index("librdkafka (confluent-kafka):") + 1 :][:2])
    library = eval(f"{{{settings}}}")
    consumer = Consumer(
        {"bootstrap.servers": secured.address, "group.id": "g", "auto.offset.reset": "earliest", **library}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"from kafka-python"


def test_secrets_are_for_the_owner_only_and_on_no_command_line(secured: Secured) -> None:
    assert stat.S_IMODE(secured.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secured.folder.iterdir()}
    assert {name for name, mode in modes.items() if mode & 0o077} == {"ca.pem"}
    passwords = [path.read_text().strip() for path in secured.folder.glob("*.password")]
    assert len(passwords) == 3  # of admin, of the brokers, and the secret of tokens
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it has ended
        assert not any(password in words for password in passwords)
    assert not any(password in secured.banner for password in passwords)


def test_a_token_is_made_and_logs_in_over_tls(secured: Secured) -> None:
    run("ottla", "topics", "create", "receipts", *secured.admin)
    made = run("ottla", "tokens", "create", "--write", str(secured.folder / "job.properties"), *secured.admin)
    assert made.code == 0, made.err
    assert "receipts" in run("ottla", "topics", "list", *secured.options("job.properties")).out


def test_a_user_is_made_logs_in_and_may_do_what_it_was_given(secured: Secured) -> None:
    run("ottla", "topics", "create", "invoices", *secured.admin)
    made = run("ottla", "users", "add", "alice", "--write", str(secured.folder / "alice.properties"), *secured.admin)
    assert (made.code, made.out.splitlines()[0]) == (0, "alice can log in with SCRAM-SHA-512.")
    listed = json.loads(run("ottla", "users", "list", "--json", *secured.admin).out)
    assert listed == [{"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    assert run("ottla", "topics", "list", *secured.options("alice.properties")).out == ""
    denied = run("ottla", "produce", "invoices", "an invoice", *secured.options("alice.properties"))
    assert denied.code == 1
    assert "authorized" in denied.err.lower()
    given = ("--allow", "User:alice", "--producer", "--topic", "invoices")
    assert run("ottla", "acls", "add", *given, *secured.admin).code == 0
    assert run("ottla", "produce", "invoices", "an invoice", *secured.options("alice.properties")).code == 0
    assert run("ottla", "topics", "list", *secured.options("alice.properties")).out == "invoices\n"
    question = ("--principal", "User:alice", "--operation", "write", "--topic", "invoices")
    assert "alice" in run("ottla", "acls", "explain", *question, *secured.admin).out
    assert run("ottla", "users", "remove", "alice", "--yes", *secured.admin).code == 0
    refused = run("ottla", "topics", "list", *secured.options("alice.properties"))
    assert refused.code == 1
    assert "authentication failed" in refused.err.lower()
    assert run("ottla", "users", "remove", "alice", "--yes", *secured.admin).code == 1


def test_a_client_without_password_or_trusted_certificate_is_refused(secured: Secured) -> None:
    library = {"bootstrap.servers": secured.address, "security.protocol": "SASL_SSL", "log_level": 0}
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "guess"}
    trust = {"ssl.ca.location": str(secured.folder / "ca.pem")}
    assert first_error({**library, **login, **trust}).code() == KafkaError._AUTHENTICATION
    assert "certificate verify failed" in first_error({**library, **login}).str()
    plain = run("ottla", "topics", "list", "--bootstrap-server", secured.address)
    assert (plain.code, plain.err.count("\n")) == (1, 1)


def test_a_secured_folder_is_not_opened_without_login(secured: Secured) -> None:
    refused = run("ottla", "up", "--port", "0", "--data", str(secured.data))
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "ottla up --secure" in refused.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add", "bob"], "which password?"),
        (["add", "bob", "--password-file", "/nonexistent"], "cannot read /nonexistent"),
        (["add", "bob", "--mechanism", "SCRAM-SHA-1"], "SCRAM-SHA-1"),
        (["add", "", "--write", "unused"], "name"),
        (["add", "bob", "--iterations", "1", "--write", "unused"], "teration"),
    ],
)
def test_bad_users_are_refused_in_a_line(secured: Secured, tmp_path: Path, words: list[str], told: str) -> None:
    outcome = subprocess.run(
        [*command_of("ottla"), "users", *words, *secured.admin],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "OTTLA_PASSWORD"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert outcome.returncode in (1, 2)
    assert told in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_of_a_test_is_secured_with_one_word(protocol: str) -> None:
    with Broker(security=protocol, topics={"orders": 1}) as broker:
        assert broker.security is not None
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **broker.security.librdkafka})
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=30_000,
            **broker.security.kafka_python,
        )
        assert next(iter(consumer)).value == b"x"
        consumer.close()


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(BrokerError, match="SASL_SSL"):
        Broker(security="TLS")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("security.protocol=SASL_SSL", "security.protocol=SASL_PLAINTEXT", "speaks TLS"),
        ("security.protocol=SASL_SSL", "security.protocol=SSL", "requires a login (PLAIN, "),
        ('username="admin"', 'username="eve"', "failed"),
        ("ssl.truststore.location", "unused", "certificate is refused"),
    ],
)
def test_the_doctor_tries_a_login_and_names_the_fault(
    secured: Secured, tmp_path: Path, before: str, after: str, told: str
) -> None:
    wrong = tmp_path / "client.properties"
    wrong.write_text((secured.folder / "admin.properties").read_text().replace(before, after))
    wrong.chmod(0o600)
    outcome = run("ottla", "doctor", "--bootstrap-server", secured.address, "--command-config", str(wrong))
    assert outcome.code == 1
    assert outcome.out.startswith("PROBLEM F10: ")
    assert told in outcome.out
    assert "cure:" in outcome.out
    assert run("ottla", "doctor", *secured.admin).code == 0
