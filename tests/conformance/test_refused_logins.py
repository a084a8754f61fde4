"""A user without rights: what the producer tools report, and what the doctor finds with the same login (F11, F12)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conformance.waiting import eventually
from tests.conftest import FOREIGN_BOOTSTRAP, free_port, ottla_command

from ottla.testing.broker import Broker

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
RUN_SECONDS_MAX = 40


class Scene(NamedTuple):
    broker: Broker
    address: str
    config: Path

    def run(
        self, *arguments: str, command: list[str] | None = None, lines: str = ""
    ) -> subprocess.CompletedProcess[str]:
        where = ("--bootstrap-server", self.address, "--command-config", str(self.config))
        whole = [*(command or ottla_command()), *arguments, *where]
        return subprocess.run(whole, input=lines, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)

    def grant(self, *words: str) -> None:
        where = ("--bootstrap-server", self.broker.bootstrap_servers)
        subprocess.run([*ottla_command(), "acls", *words, *where], check=True, timeout=RUN_SECONDS_MAX)

    def findings(self, *words: str) -> list[Any]:
        found = json.loads(self.run("doctor", "--json", *words).stdout)["findings"]
        return [
            (each["severity"], each["case"], each["what"]) for each in found if "may not describe" not in each["what"]
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder, address = tmp_path, f"127.0.0.1:{free_port()}"
    config = folder / "bob.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="bob" password="word of bob";\n'
    )
    config.chmod(0o600)
    broker = Broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_bob="word of bob";',
        },
        topics=["orders"],
    )
    broker.settings |= {
        "listeners": f"{broker.settings['listeners']},CLIENTS://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    }
    with broker:
        yield Scene(broker, address, config)


def test_producers_report_missing_rights_and_the_doctor_the_reason(scene: Scene) -> None:
    told = (
        "User:bob is not authorized to write to topic orders. "
        "Allow it with: ottla acls add --allow User:bob --producer --topic orders"
    )
    script = [sys.executable, "-m", "ottla.cli.kafka_scripts", "kafka-console-producer.sh"]

    refused = scene.run("produce", "orders", "x")
    assert (refused.returncode, refused.stderr) == (1, f"ottla produce: {told}\n")
    assert told in scene.run("--topic", "orders", command=script, lines="x\n").stderr
    waiting, group = scene.findings("--topic", "orders", "--group", "billing")
    assert waiting[:2] == ("problem", "F12")
    assert "topic orders does not exist for User:bob" in waiting[2]
    assert group == ("problem", "F11", "User:bob may not read as group billing: its consumers get no partitions")

    scene.grant("add", "--allow", "User:bob", "--operation", "read", "--topic", "orders")
    scene.grant("add", "--allow", "User:bob", "--operation", "read", "--group", "billing")
    only_read = ("note", "F11", "User:bob may read topic orders, and may not write to it")
    assert eventually(lambda: only_read in scene.findings("--topic", "orders", "--group", "billing"))
    for _ in range(2):  # a producer that is not one at all, and one that may write elsewhere
        refused = scene.run("produce", "orders", "x")
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
        assert refused.stderr.endswith(f"{told}\n")
        scene.grant("add", "--allow", "User:bob", "--producer", "--topic", "others")

    scene.grant("add", "--allow", "User:bob", "--producer", "--topic", "orders")
    assert eventually(lambda: scene.run("produce", "orders", "x").returncode == 0)
    assert scene.findings("--topic", "orders", "--group", "billing") == []
