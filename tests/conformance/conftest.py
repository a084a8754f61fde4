"""Fixtures of the conformance tests: topics with names of their own, and Apache Kafka's jars."""

import itertools
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.config_requests import BROKER, DYNAMIC_BROKER, DYNAMIC_DEFAULT, entries
from tests.conformance.group_calls import find_coordinator
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.raw import assert_others_are_served, listening_pid, resident_bytes
from tests.conformance.waiting import eventually
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).parent / "java" / "pom.xml"
FLINK_VERSION, BEAM_VERSION = "2.2.1", "2.73.0"  # as their poms say
APPLICATIONS_POM = POM.with_name("applications.xml")

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALL_RIGHTS = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}  # for clients that do not log in

GROWTH_BYTES_MAX = 256 << 20
COORDINATOR_SECONDS_MAX = 30
DYNAMIC = (DYNAMIC_BROKER, DYNAMIC_DEFAULT)

NewTopic = Callable[..., str]


def broker_of_module(factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Broker | None]:
    """For a fixture `broker` of module scope: a broker with settings of its own, None when a foreign one is tested."""
    if FOREIGN_BOOTSTRAP:
        yield None
        return
    broker = Broker(factory.mktemp("quick"), settings)
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture(scope="module")
def address(broker: Broker | None) -> str:
    """Of a module's own broker."""
    return broker.bootstrap if broker is not None else FOREIGN_BOOTSTRAP


@pytest.fixture(scope="session")
def topic_names(bootstrap: str) -> Iterator[Callable[[], str]]:
    """Names that no other test uses; what exists of them is deleted at the end (a foreign broker lives on)."""
    prefix = f"conformance-{uuid.uuid4().hex[:8]}"
    counter = itertools.count()
    yield lambda: f"{prefix}-{next(counter)}"
    with Peer(bootstrap) as peer:
        left_over = sorted(name for name in peer.topic_names() if name.startswith(prefix))
        if left_over:
            peer.delete_topics(left_over)


@pytest.fixture
def topic_name(topic_names: Callable[[], str]) -> str:
    """A name under which nothing exists yet."""
    return topic_names()


@pytest.fixture
def new_topic(bootstrap: str, topic_names: Callable[[], str]) -> NewTopic:
    """`new_topic(partitions=3, cleanup_policy="compact")` creates a topic and returns its name."""

    def create(partitions: int = 1, **configs: object) -> str:
        name = topic_names()
        with Peer(bootstrap) as peer:
            peer.create_topic(name, partitions, **configs)
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture(scope="module")
def same_settings(bootstrap: str) -> Iterator[None]:
    """A file of tests leaves the settings of the shared broker as it found them: later files depend on them."""

    def changed() -> dict[str, Any]:
        with Peer(bootstrap) as peer:
            found = {(name, key): entry for name in ("", "1") for key, entry in entries(peer, BROKER, name).items()}
        return {key: entry.value for key, entry in found.items() if entry.config_source in DYNAMIC}

    before = changed()
    yield
    assert eventually(lambda: changed() == before), f"settings were {before}, now they are {changed()}"


@pytest.fixture
def peer(bootstrap: str, same_settings: None) -> Iterator[Peer]:
    with Peer(bootstrap) as connected:
        yield connected


@pytest.fixture(scope="session")
def coordinator(bootstrap: str) -> None:
    """Groups and transactions can be used: their internal topics are made when a client first asks for them."""
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    with Peer(bootstrap) as peer:
        for key_type in (0, 1):
            while (error := find_coordinator(peer, "any-key", key_type).error_code) != 0:
                assert time.monotonic() < deadline, f"no coordinator: {error}"
                time.sleep(0.05)


@pytest.fixture(scope="session")
def broker_pid(bootstrap: str) -> int:
    return listening_pid(bootstrap)


@pytest.fixture
def broker_stays_healthy(bootstrap: str, broker_pid: int, broker: object) -> Iterator[None]:
    """After the test others are served at once and the broker has not grown (a JVM's heap is not ours to judge)."""
    resident_before = resident_bytes(broker_pid)
    yield
    assert_others_are_served(bootstrap)
    if broker is not None:
        assert resident_bytes(broker_pid) - resident_before <= GROWTH_BYTES_MAX


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars, resolved once by Maven into the user's cache."""
    return find_jars(KAFKA_VERSION)


@pytest.fixture(scope="session")
def java(kafka_jars: Path) -> Iterator[JavaTools]:
    """Apache Kafka's own tools. One JVM for all tests: it knows the classes of a tool when the second test comes."""
    with JavaTools(kafka_jars) as tools:
        yield tools


@pytest.fixture(scope="session")
def application_jars() -> Path:
    """The same for Kafka Streams, Connect and MirrorMaker 2."""
    return find_jars(KAFKA_VERSION, "kafka-applications", APPLICATIONS_POM)


@pytest.fixture(scope="session")
def flink_jars() -> Path:
    """Apache Flink and its Kafka connector."""
    return find_jars(FLINK_VERSION, "flink", POM.with_name("flink.xml"))


@pytest.fixture(scope="session")
def beam_jars() -> Path:
    """Apache Beam, KafkaIO and the direct runner."""
    return find_jars(BEAM_VERSION, "beam", POM.with_name("beam.xml"))


def find_jars(version: str, name: str = "kafka", pom: Path = POM) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "ottla" / f"{name}-{version}"
    if not folder.exists():
        resolve_jars(folder, version, pom)
    return folder


def resolve_jars(folder: Path, version: str, pom: Path) -> None:
    """Copy into a temporary folder first: a folder with the right name is always complete."""
    maven = shutil.which("mvn")
    assert maven, "Apache Kafka's jars are needed once: install Maven (Debian: apt-get install maven) and try again"
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
    done = subprocess.run([*command, f"-Dkafka.version={version}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Maven could not resolve Apache Kafka's jars:\n{done.stdout[-3000:]}{done.stderr}"
    try:
        unfinished.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(unfinished)
