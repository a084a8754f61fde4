"""Who may do what in ZooKeeper, node by node, beside what Apache Kafka 3.9 and its migration tool make of it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.conftest import find_jars
from tests.conftest import free_port
from tests.faults.kafka_39_broker import Kafka39Broker
from tests.faults.zookeeper_kafka import KAFKA_VERSION

from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.security.zookeeper import tool_security
from ottla.testing.broker import Broker
from ottla.testing.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

SECONDS_MAX = 120.0
Rights = dict[str, list[tuple[str, str, int]]]


def rights_below(connect: str, environment: dict[str, str]) -> Rights:
    async def body() -> Rights:
        store = ZooKeeperStore(connect, security=tool_security(environment))
        await store.open()
        found: Rights = {}
        for path in ("/", *await store.subtree("/")):
            rights = (await store._session.client.get_acls_async(store._full(path)).future)[0]
            found[path] = [(right.id.scheme, right.id.id, right.perms) for right in rights]
        await store.close()
        return found

    return asyncio.run(body())


def run(*command: str, environment: dict[str, str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX, env={**os.environ, **environment})


def test_brokers_and_tools_of_both_give_the_same_rights(tmp_path: Path) -> None:
    jars = find_jars(KAFKA_VERSION)
    with ZooKeeperProcess(users={"kafka": "pass word"}) as zookeeper:
        login = zookeeper.login_option("kafka")
        environment = {"KAFKA_OPTS": login}
        kafka = Kafka39Broker(
            tmp_path, jars, 1, f"127.0.0.1:{free_port()}", tmp_path / "data", f"{zookeeper.connect}/kafka", login
        )
        kafka.settings["zookeeper.set.acl"] = "true"
        settings = {"zookeeper.connect": f"{zookeeper.connect}/ottla", "broker.id": "1"}
        try:
            kafka.launch()
            with Broker({**settings, "zookeeper.set.acl": "true"}, environment=environment):
                kafka.wait_until_ready()
                theirs = rights_below(f"{zookeeper.connect}/kafka", environment)
                ours = rights_below(f"{zookeeper.connect}/ottla", environment)
        finally:
            kafka.kill()
        shared = theirs.keys() & ours.keys()
        assert len(shared) > 20
        assert {path: theirs[path] for path in shared} == {path: ours[path] for path in shared}

        settings["zookeeper.connect"] = f"{zookeeper.connect}/open"
        with Broker(settings, environment=environment):
            tool = (sys.executable, "-m", "ottla.cli.kafka_scripts", "zookeeper-security-migration.sh")
            place = ("--zookeeper.connect", settings["zookeeper.connect"])
            java = ("java", *login.split(), "-cp", f"{jars}/*", "kafka.admin.ZkSecurityMigrator")
            run(*java, "--zookeeper.acl=secure", *place, environment={})
            theirs = rights_below(settings["zookeeper.connect"], environment)
            run(*tool, "--zookeeper.acl=unsecure", *place, environment=environment)
            assert set(map(str, rights_below(place[1], environment).values())) == {str([("world", "anyone", 31)])}
            run(*tool, "--zookeeper.acl=secure", *place, environment=environment)
            assert rights_below(settings["zookeeper.connect"], environment) == theirs
