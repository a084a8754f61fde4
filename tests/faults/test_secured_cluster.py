"""R1, R5, R7 and R14 with everything on (SASL_SSL, rights, a ZooKeeper with logins), and the way there under load."""

import json
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.faults import cluster_faults as fault
from tests.faults.cluster_checker import TOPIC, Checker, Outcome
from tests.faults.cluster_faults import Fault, Scene
from tests.faults.cluster_rounds import check_logs, rounds, run_rounds
from tests.faults.worker import SECURITY

from ottla.security.secure_folder import AUTHORITY_KEY, IssuedCertificate, issue_certificate, write_secret
from ottla.testing.cluster import Cluster
from ottla.testing.security import Security
from ottla.testing.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.faults
SESSION_SECONDS = 6.0
ClusterFactory = Callable[..., Cluster]
ZOOKEEPER_USERS = {"kafka": "zookeeper-secret"}
REAUTH_MS = 5_000  # so that logins expire while brokers die

# name: (fault, rounds, how long a partition may go without an acknowledgement, with transactions and groups)
ROUNDS: dict[str, tuple[Fault, int, float, bool]] = {
    "R1 kill leader": (fault.kill_leader, 100, SESSION_SECONDS + 3, False),
    "R5 pause leader": (fault.pause_leader, 50, 2 * SESSION_SECONDS + 3, False),
    "R7 restart ZooKeeper": (fault.restart_zookeeper, 20, 5.0, False),  # old logins go on, and new ones are let in
    "R14 roll": (fault.roll, 20, 2.0 + 1.0, True),
}


@contextmanager
def clients_of(bootstrap: str, security: Security) -> Iterator[None]:
    """Clients of these addresses log in."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(SECURITY, json.dumps({bootstrap: security.librdkafka}))
        yield


def secured_cluster(cluster_factory: ClusterFactory, tmp_path: Path) -> tuple[Cluster, Security]:
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper", users=ZOOKEEPER_USERS)
    login = {"KAFKA_OPTS": zookeeper.login_option("kafka")}
    cluster = cluster_factory(
        settings={"connections.max.reauth.ms": REAUTH_MS, "zookeeper.set.acl": "true"},
        security="SASL_SSL",
        zookeeper=zookeeper,
        environments=dict.fromkeys((1, 2, 3), login),
    )
    assert cluster.security is not None
    return cluster, cluster.security


@pytest.mark.parametrize("name", ROUNDS)
def test_nothing_is_lost_with_everything_on(cluster_factory: ClusterFactory, tmp_path: Path, name: str) -> None:
    what, full, gap_seconds_max, has_transactions = ROUNDS[name]
    cluster, security = secured_cluster(cluster_factory, tmp_path)
    with clients_of(cluster.bootstrap, security):
        run_rounds(
            cluster,
            tmp_path / "logs",
            [what] * rounds(full),
            gap_seconds_max=gap_seconds_max,
            has_transactions=has_transactions,
        )


def test_certificates_are_renewed_under_load(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Without a restart; a file that is only half there changes nothing."""
    cluster, security = secured_cluster(cluster_factory, tmp_path)
    folder = security.folder
    authority = IssuedCertificate(folder.authority_file.read_bytes(), (folder.path / AUTHORITY_KEY).read_bytes())
    files = {broker.id: folder.path / f"broker-{broker.id}.pem" for broker in cluster.brokers}

    def put(made: Callable[[int], bytes], said: str) -> None:
        marks = {broker.id: broker.log_position() for broker in cluster.brokers}
        for number, file in files.items():
            write_secret(file, made(number))
        for broker in cluster.brokers:
            cluster.wait_for(lambda b=broker: said in b.logs_since(marks[b.id]), said)  # type: ignore[misc]

    def renewed(number: int) -> bytes:
        issued = issue_certificate(authority, f"broker-{number}", ("127.0.0.1", "localhost"), datetime.now(UTC))
        return issued.key + issued.certificate

    with clients_of(cluster.bootstrap, security), Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        put(renewed, "new certificates are in use")
        put(lambda number: renewed(number)[:300], "new certificates are not used")
        put(renewed, "new certificates are in use")
        fault.roll(Scene(cluster, random.Random(2), TOPIC))
        check(checker.finish(cluster))
    check_logs(cluster)


class GrowingCluster:
    """Three brokers on their way from PLAINTEXT to SASL_SSL, one roll after the other, as Kafka's manual has it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.security = Security("SASL_SSL", folder)
        self.plain = {broker.id: broker.bootstrap_servers for broker in cluster.brokers}
        self._reserved = [socket.create_server(("127.0.0.1", 0)) for _ in cluster.brokers]
        self.secure = {
            broker.id: f"127.0.0.1:{each.getsockname()[1]}"
            for broker, each in zip(cluster.brokers, self._reserved, strict=True)
        }
        for each in self._reserved:
            each.close()
        self.chance = random.Random(1)

    def bootstrap(self, addresses: dict[int, str]) -> str:
        return ",".join(addresses.values())

    def roll(self, listeners: Callable[[int], str], settings: dict[str, str]) -> None:
        for broker in self.chance.sample(self.cluster.brokers, len(self.cluster.brokers)):
            broker.stop()
            broker._process.config = self.security.broker_file(broker.id)
            for key in ("security.inter.broker.protocol", "authorizer.class.name"):
                broker.settings.pop(key, None)
            broker.settings |= {"listeners": listeners(broker.id), **settings}
            broker.start()
            self.cluster.wait_until_whole()

    def both(self, broker: int) -> str:
        return f"PLAINTEXT://{self.plain[broker]},SASL_SSL://{self.secure[broker]}"

    def only_secure(self, broker: int) -> str:
        return f"SASL_SSL://{self.secure[broker]}"


def test_from_plaintext_to_sasl_ssl_under_load(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = cluster_factory()
    growing = GrowingCluster(cluster, tmp_path)
    plain, secure = growing.bootstrap(growing.plain), growing.bootstrap(growing.secure)
    with clients_of(secure, growing.security), Checker(plain, tmp_path / "plain", topic="plain") as old:
        growing.roll(growing.both, {"security.inter.broker.protocol": "PLAINTEXT", "authorizer.class.name": ""})
        with Checker(secure, tmp_path / "secure", topic="secure", seed=1) as new:
            growing.roll(growing.both, {"security.inter.broker.protocol": "SASL_SSL", "authorizer.class.name": ""})
            check(old.finish(cluster))
            for broker in cluster.brokers:  # from here on all clients use the other listener
                broker._process.address = growing.secure[broker.id]
            cluster.security = growing.security
            growing.roll(growing.only_secure, {})
            check(new.finish(cluster))
    check_logs(cluster)
    for address in growing.plain.values():
        host, _, port = address.partition(":")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((host, int(port)), 5)


def check(outcome: Outcome) -> None:
    print(outcome)
    assert not outcome.violations, outcome
    assert not outcome.given_up, outcome
    assert outcome.acknowledged > 200, outcome
    assert outcome.longest_gap_seconds < SESSION_SECONDS, outcome
