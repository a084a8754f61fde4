"""Delegation tokens by other people's hands: Apache Kafka's tool and clients, our tools, the source of pipelines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from tests.conformance.conftest import AUTHORIZER
from tests.conformance.java_tools import JavaTools
from tests.conformance.queries import queried_values
from tests.conformance.token_requests import DIFFERENT, PLAIN, USERS, Scene, login_of, password_of, play, token_login
from tests.conftest import FOREIGN_BOOTSTRAP, free_port

from ottla.base.properties import read_properties
from ottla.client.admin import Admin
from ottla.client.client import open_client
from ottla.client.tokens import TokenWithHmac, create_token, describe_tokens
from ottla.testing.broker import Broker

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")

RECORDED = json.loads((Path(__file__).parent / "delegation_tokens.json").read_text())
TOOL = "kafka-delegation-tokens.sh"
SECRET = "one-for-all-brokers"
WAIT_MS = "20000"
ADMIN = login_of("PLAIN", PLAIN, "admin", password_of("admin"))
# Run by Kafka's tool and by ours: what they print is the same but for ids and passwords. HMAC is a token's of admin.
COMMANDS = [
    "--create --max-life-time-period -1 --renewer-principal User:bob --renewer-principal User:carol",
    "--create --max-life-time-period 3600000 --owner-principal User:bob",
    "--describe --owner-principal User:carol",
    "--renew --hmac HMAC --renew-time-period 3600000",
    "--expire --hmac HMAC --expiry-time-period 1800000",
    "--expire --hmac HMAC --expiry-time-period -1",
    "--renew --hmac bm9uZQ== --renew-time-period -1",
    "--create --max-life-time-period -1 --renewer-principal Group:x",
    "--create --max-life-time-period -1 --renewer-principal bob",
    "--create",
    "--renew --expire",
    "--renew --hmac x --renew-time-period -1 --owner-principal User:alice",
    "",
]
TOKEN = re.compile(r"[\w-]{22}( +)[\w+/]{86}==|(?<=tokenId : )[\w-]{22}|(?<=hmac :)[\w+/]{86}==")


def masked(printed: str) -> str:
    """Without what differs from token to token, and from minute to minute."""
    return re.sub(r"T\d\d:\d\d\b", "", TOKEN.sub("token", printed))


class Secured(NamedTuple):
    """A broker with an open listener and one that asks for a login."""

    broker: Broker
    address: str

    def file(self, folder: Path, properties: Mapping[str, str] = ADMIN) -> str:
        path = folder / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        path.chmod(0o600)
        return str(path)

    def new_token(self, owner: str | None = None) -> TokenWithHmac:
        """Owned by admin, a super user, or created by admin for another owner."""
        with open_client(self.address, ADMIN) as client:
            return create_token(client, owner=owner)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    address = f"127.0.0.1:{free_port()}"
    users = " ".join(f'user_{name}="{password_of(name)}"' for name in USERS)
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "delegation.token.secret.key": SECRET,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "ottla.audit.enable": "true",
        "ottla.audit.events": "token.*",
    }
    broker = Broker(settings, topics=["t"])
    listeners = f"{broker.settings['listeners']},CLIENTS://{address}"
    protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
    broker.settings |= {"listeners": listeners, "listener.security.protocol.map": protocols}
    with broker:
        yield Secured(broker, address)
        assert SECRET not in broker.logs


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=40, check=False)


def test_every_answer_is_kafkas(secured: Secured) -> None:
    scene = Scene(secured.broker.bootstrap_servers, secured.address)
    try:
        assert play(scene) == RECORDED | DIFFERENT
    finally:
        scene.close()


@pytest.mark.parametrize("line", COMMANDS)
def test_the_tool_prints_what_kafkas_prints(secured: Secured, java: JavaTools, tmp_path: Path, line: str) -> None:
    common = ["--bootstrap-server", secured.address, "--command-config", secured.file(tmp_path)]
    words = [line.replace("HMAC", secured.new_token().password).split() for _ in range(2)]
    theirs = java.run(TOOL, *common, *words[0])
    ours = run("ottla.cli.kafka_scripts", TOOL, *common, *words[1])
    assert ours.returncode == theirs.code, ours.stderr + theirs.err
    if "--describe" not in line:  # by now there is one more
        assert masked(ours.stdout) == masked(theirs.out)
    else:
        assert masked(ours.stdout).splitlines()[:5] == masked(theirs.out).splitlines()[:5]
    assert ours.stderr.splitlines()[:1] == theirs.err.splitlines()[:1]


def test_java_clients_log_in_with_a_token(secured: Secured, java: JavaTools, tmp_path: Path) -> None:
    token = secured.new_token()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = secured.file(tmp_path, token_login(token.token.token_id, token.hmac, mechanism))
        words = ("--bootstrap-server", secured.address, "--command-config", config)
        sent = java.run(
            "kafka-producer-perf-test.sh",
            *("--topic", "t", "--num-records", "10", "--record-size", "10", "--throughput", "-1", *words),
        )
        assert "10 records sent" in sent.out, sent.err
        read = java.run(
            "kafka-console-consumer.sh",
            *("--topic", "t", "--from-beginning", "--max-messages", "5", "--timeout-ms", WAIT_MS, *words),
        )
        assert len(read.out.splitlines()) == 5, read.err
    refused = java.run(TOOL, *words, *COMMANDS[0].split())
    assert refused.code == 1
    assert "Delegation Token requests are not allowed on" in refused.err
    forged = secured.file(tmp_path, token_login(token.token.token_id, b"forged"))
    refused = java.run("kafka-topics.sh", "--bootstrap-server", secured.address, "--command-config", forged, "--list")
    assert refused.code == 1
    assert "Authentication failed" in refused.out
    assert "do all brokers have the same delegation.token.secret.key?" in secured.broker.logs
    assert token.password not in secured.broker.logs


def test_our_tools_make_and_use_a_token(secured: Secured, tmp_path: Path) -> None:
    """librdkafka cannot log in with one: kafka-python takes its place."""
    connection = ("--bootstrap-server", secured.address, "--command-config")
    admin, written = secured.file(tmp_path), str(tmp_path / "job.properties")
    made = run("ottla.cli.main", "tokens", "create", "--lifetime", "1h", "--write", written, *connection, admin)
    assert made.returncode == 0, made.stderr
    token_id = made.stdout.split("Token ")[1].split()[0]
    assert 'tokenauth="true"' in read_properties(Path(written).read_text())["sasl.jaas.config"]
    sent = run("ottla.cli.main", "produce", "t", *connection, written, stdin="by token\n")
    assert sent.returncode == 0, sent.stderr
    read = run("ottla.cli.main", "consume", "t", "--from-beginning", "--until-end", *connection, written)
    assert "by token" in read.stdout.splitlines(), read.stderr
    listed = run("ottla.cli.main", "tokens", "list", "--json", *connection, admin)
    (row,) = [row for row in json.loads(listed.stdout) if row["token"] == token_id]
    assert (row["owner"], row["requester"], row["renewers"]) == ("User:admin", "User:admin", [])
    refused = run("ottla.cli.main", "tokens", "list", *connection, written)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "need a login, and not one with a token" in refused.stderr
    for command in (("renew", token_id, "--for", "30m"), ("expire", token_id, "--yes")):
        done = run("ottla.cli.main", "tokens", *command, *connection, admin)
        assert done.returncode == 0, done.stderr
    refused = run("ottla.cli.main", "topics", "list", *connection, written)
    assert refused.returncode == 1
    assert "invalid credentials" in refused.stderr
    trail = run("ottla.cli.main", "audit", "--json", *connection, admin).stdout
    events = [event for event in map(json.loads, trail.splitlines()) if event["resource"] == token_id]
    assert [event["event"] for event in events] == ["token.create", "token.renew", "token.expire"]
    assert [event["before"]["owner"] for event in events[1:]] == ["User:admin"] * 2
    assert (events[1]["after"]["expires_ms"], events[2]["after"]) == (events[2]["before"]["expires_ms"], None)


def test_a_token_has_only_the_rights_of_its_owner(secured: Secured) -> None:
    token = secured.new_token("User:alice")
    with open_client(secured.address, token_login(token.token.token_id, token.hmac)) as client:
        assert Admin(client).topics() == []


def test_a_query_reads_with_a_token(secured: Secured) -> None:
    """The source of pipelines, without Spark around it."""
    producer = Producer({"bootstrap.servers": secured.broker.bootstrap_servers})
    producer.produce("t", b"query")
    assert producer.flush(20) == 0
    token = secured.new_token()
    assert b"query" in queried_values(secured.address, "t", token_login(token.token.token_id, token.hmac))


def test_tokens_outlive_a_restart(secured: Secured) -> None:
    token = secured.new_token()
    secured.broker.restart()
    with open_client(secured.address, token_login(token.token.token_id, token.hmac)) as client:
        assert client.cluster().brokers
    with open_client(secured.address, ADMIN) as client:
        assert token in describe_tokens(client)
