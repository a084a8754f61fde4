"""Clients that need node or go: `pytest -m other_languages` (a bare machine has neither).

Each over two listeners: PLAINTEXT, and SASL_SSL with a SCRAM login. The Java checks use the second one, too.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conformance.registry_node import RegistryNode
from tests.conformance.test_java import EXPECTED, run_checks
from tests.conftest import FOREIGN_BOOTSTRAP

from ottla.client.client import open_client
from ottla.client.quotas import ScramUpsertion, alter_scram
from ottla.security.secure_folder import ADMIN
from ottla.testing.broker import Broker

pytestmark = pytest.mark.other_languages

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 300


class Endpoint(NamedTuple):
    """The address of a listener and the environment variables of its clients."""

    bootstrap: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def secured_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with Broker(security="SASL_SSL") as broker:
        assert broker.security is not None
        password = broker.security.folder.password(ADMIN)
        with open_client(broker.bootstrap_servers, broker.security.properties) as client:
            alter_scram(client, ADMIN, [ScramUpsertion("SCRAM-SHA-512", 4096, password.encode())], [])
        properties = tmp_path_factory.mktemp("endpoint") / "client.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in broker.security.properties.items()))
        yield Endpoint(
            broker.bootstrap_servers,
            {
                "OTTLA_TEST_CA": str(broker.security.folder.authority_file),
                "OTTLA_TEST_USER": ADMIN,
                "OTTLA_TEST_PASSWORD": password,
                "OTTLA_TEST_CLIENT_PROPERTIES": str(properties),
            },
        )


@pytest.fixture(params=["PLAINTEXT", "SASL_SSL"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    if request.param == "PLAINTEXT":
        return Endpoint(request.getfixturevalue("bootstrap"), {})
    if FOREIGN_BOOTSTRAP:
        pytest.skip("its listeners are not ours to set")
    found: Endpoint = request.getfixturevalue("secured_endpoint")
    return found


def run(command: list[str], folder: Path, endpoint: Endpoint | None = None) -> str:
    assert shutil.which(command[0]), f"{command[0]} is not installed"
    environment = {**os.environ, **(endpoint.environment if endpoint is not None else {})}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def workshop(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the sources, so that npm and go download nothing into the project."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / request.param))


@pytest.mark.parametrize("workshop", ["kafkajs"], indirect=True)
def test_kafkajs(workshop: Path, endpoint: Endpoint, topic_name: str) -> None:
    run(["npm", "install", "--no-audit", "--no-fund", "--silent"], workshop)
    seen: dict[str, Any] = json.loads(
        run(["node", "round_trip.js", endpoint.bootstrap, topic_name], workshop, endpoint)
    )
    assert seen == {
        "created": True,
        "createdAgain": False,
        "sent": [[0, 0, "0"], [1, 0, "0"]],
        "packed": "25",
        "offsets": [[0, "0", "26"], [1, "0", "25"]],
        "later": [[0, "26"], [1, "25"]],
        "partitions": 2,
        "brokers": [[1, endpoint.bootstrap]],
        "controller": 1,
        "retention": ["777777"],
        "listed": True,
    }


@pytest.mark.parametrize("workshop", ["kafkajs"], indirect=True)
def test_kafkajs_in_groups_and_transactions(workshop: Path, endpoint: Endpoint, topic_name: str) -> None:
    run(["npm", "install", "--no-audit", "--no-fund", "--silent"], workshop)
    assert json.loads(run(["node", "groups.js", endpoint.bootstrap, topic_name], workshop, endpoint)) == {
        "read": 100,
        "copied": 100,
        "aborted": True,
        "committed": 100,
        "readers": [[0, "50"], [1, "50"]],
        "copiers": [[0, "50"], [1, "50"]],
        "state": "Empty",
        "listed": True,
        "reset": "7",
    }


@pytest.mark.parametrize("workshop", ["franz_go"], indirect=True)
def test_franz_go(workshop: Path, endpoint: Endpoint, topic_name: str) -> None:
    run(["go", "mod", "tidy"], workshop)
    seen: dict[str, Any] = json.loads(run(["go", "run", ".", endpoint.bootstrap, topic_name], workshop, endpoint))
    already_there = seen.pop("created again")
    assert already_there.startswith("TOPIC_ALREADY_EXISTS")
    assert seen == {
        "consumed": 300,
        "ordered": True,
        "end": 100,
        "brokers": 1,
        "partitions": 3,
        "retention": "777777",
        "group range": 300,
        "lag range": 0,
        "group cooperative": 300,
        "lag cooperative": 0,
        "copied": 300,
        "aborted unseen": True,
    }


@pytest.mark.parametrize("workshop", ["sarama"], indirect=True)
def test_sarama(workshop: Path, endpoint: Endpoint, topic_name: str) -> None:
    run(["go", "mod", "tidy"], workshop)
    assert json.loads(run(["go", "run", ".", endpoint.bootstrap, topic_name], workshop, endpoint)) == {
        "read": 300,
        "copied": 300,
        "committed": 300,
        "readers": [100, 100, 100],
        "copiers": [100, 100, 100],
    }


@pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")
def test_java_over_sasl_ssl(secured_endpoint: Endpoint, kafka_jars: Path, tmp_path: Path) -> None:
    """All of test_java.py once more."""
    found = run_checks(secured_endpoint.bootstrap, "secured", kafka_jars, tmp_path, secured_endpoint.environment)
    failed = {name: line["error"] for name, line in found.items() if "error" in line}
    assert not failed
    assert {name: found[name]["result"] for name in EXPECTED} == EXPECTED


@pytest.fixture
def registry(bootstrap: str, topic_name: str) -> Iterator[RegistryNode]:
    made = RegistryNode(bootstrap, topic_name)
    yield made
    made.stop()


@pytest.mark.parametrize("workshop", ["kafkajs"], indirect=True)
def test_the_registry_with_node(workshop: Path, registry: RegistryNode) -> None:
    run(["npm", "install", "--silent", "--no-audit", "--no-fund"], workshop)
    seen = json.loads(run(["node", "registry.js", registry.url, "orders-value"], workshop))
    assert seen == {
        "again": True, "latest": True, "magic": [0, True], "read": [7, "tea"], "refused": 409, "missing": 404,
    }  # fmt: skip


@pytest.mark.parametrize("workshop", ["franz_go_registry"], indirect=True)
def test_the_registry_with_go(workshop: Path, registry: RegistryNode) -> None:
    run(["go", "mod", "tidy"], workshop)
    seen = json.loads(run(["go", "run", ".", registry.url, "orders-value"], workshop))
    assert seen == {
        "types": 3, "version": 1, "found": True, "text": True, "compatible": False, "refused": 409, "second": 2,
        "versions": [1, 2], "deleted": [1, 2], "gone": 40401,
    }  # fmt: skip


@pytest.mark.parametrize("workshop", ["java"], indirect=True)
def test_the_registry_with_java(workshop: Path, registry: RegistryNode) -> None:
    """Confluent's own jars are not in Maven's repository; Pinot's hold them."""
    artifact = "org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded"
    run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={workshop}"], workshop)
    jar = str(next(workshop.glob("*.jar")))
    run(["javac", "-cp", jar, "-d", str(workshop), "Registry.java"], workshop)
    seen = run(["java", "-cp", f"{jar}:{workshop}", "Registry", registry.url, "orders"], workshop)
    lines = [line for line in seen.splitlines() if line.startswith(("magic", "read", "refused"))]
    assert lines == ["magic 0 id 1", 'read {"id": 7}', "refused true"]
