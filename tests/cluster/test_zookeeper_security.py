"""Brokers and tools with a ZooKeeper that authenticates them, by password or TLS; the owners of their nodes."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from tests.certificates import PASSWORD, Authority

from ottla.base.broker_keys.zookeeper import ZooKeeperKeys
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.controller.stores.store import CreateNode, SetNode, StoreError
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.security.zookeeper import ZooKeeperClientSecurity, broker_security
from ottla.testing.broker import Broker
from ottla.testing.kdc import Kdc, is_installed
from ottla.testing.zookeeper import ZooKeeperProcess

SECONDS_MAX = 60.0
USERS = {"kafka": 'kafka "secret", with = and \\ and é', "other": "other-secret"}
Check = Callable[[ZooKeeperStore], Awaitable[None]]
CREATOR, READER, ALL_RIGHTS = ("sasl", "kafka", 31), ("world", "anyone", 1), ("world", "anyone", 31)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ZooKeeperProcess]:
    """A ZooKeeper that refuses clients without a password."""
    with ZooKeeperProcess(users=USERS) as server:
        yield server


def options(server: ZooKeeperProcess, user: str = "kafka") -> dict[str, str]:
    return {"KAFKA_OPTS": server.login_option(user)}


def security(environment: Mapping[str, str], **texts: str) -> ZooKeeperClientSecurity:
    return broker_security(ZooKeeperKeys({name.replace("_", "."): text for name, text in texts.items()}), environment)


def with_store(connect: str, found: ZooKeeperClientSecurity, check: Check) -> None:
    async def body() -> None:
        store = ZooKeeperStore(connect, connection_timeout_ms=int(SECONDS_MAX * 1000), security=found)
        await store.open()
        try:
            await check(store)
        finally:
            await store.close()

    asyncio.run(body())


async def rights(store: ZooKeeperStore, path: str) -> list[tuple[str, str, int]]:
    found = (await store._session.client.get_acls_async(store._full(path)).future)[0]
    return [(right.id.scheme, right.id.id, right.perms) for right in found]


def tool(
    environment: Mapping[str, str], *words: str, module: str = "kafka_scripts"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"ottla.cli.{module}", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "KAFKA_OPTS": "", **environment},
    )


def migrate(server: ZooKeeperProcess, chroot: str, word: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = [f"--zookeeper.acl={word}", "--zookeeper.connect", server.connect + chroot, *more]
    return tool(options(server), "zookeeper-security-migration.sh", *words)


def test_a_node_belongs_to_its_creator(guarded: ZooKeeperProcess, chroot: str) -> None:
    async def make(store: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/config"), CreateNode("/config/users"), CreateNode("/consumers")])
        assert await rights(store, "/") == [CREATOR, READER]
        assert await rights(store, "/config") == [CREATOR, READER]
        assert await rights(store, "/config/users") == [CREATOR]
        assert await rights(store, "/consumers") == [ALL_RIGHTS]

    async def intrude(store: ZooKeeperStore) -> None:
        assert await store.children("/") == ["config", "consumers"]
        with pytest.raises(StoreError, match="NoAuthError"):
            await store.get("/config/users")
        with pytest.raises(StoreError, match="NoAuthError") as refused:
            await store.multi([SetNode("/config", b"x", 0)])
        assert not isinstance(refused.value.__cause__, NoAuthError)

    with_store(guarded.connect + chroot, security(options(guarded), zookeeper_set_acl="true"), make)
    with_store(guarded.connect + chroot, security(options(guarded, "other")), intrude)


def broker(server: ZooKeeperProcess, chroot: str, environment: Mapping[str, str], **more: str) -> Broker:
    settings = {"zookeeper.connect": server.connect + chroot, "broker.id": "1", "offsets.topic.num.partitions": "1"}
    return Broker({**settings, **more}, environment=environment)


def test_a_broker_serves_behind_a_password_and_every_tool_logs_in(guarded: ZooKeeperProcess, chroot: str) -> None:
    with broker(guarded, chroot, options(guarded), **{"zookeeper.set.acl": "true"}) as running:
        with Client(running.bootstrap_servers, client_id="test") as client:
            Admin(client).create_topic("orders", partitions=2)
        place = guarded.connect + chroot
        read = tool(options(guarded), "metadata", "get", "/brokers/topics/orders", "--zookeeper", place, module="main")
        assert (read.returncode, read.stderr) == (0, "")
        assert json.loads(read.stdout)["partitions"] == {"0": [1], "1": [1]}
        listed = tool(options(guarded), "kafka-topics.sh", "--list", "--zookeeper", place)
        assert listed.stdout.splitlines() == ["orders"]
        shown = tool(options(guarded), "zookeeper-shell.sh", place, "getAcl", "/config/users")
        assert shown.stdout.splitlines()[-2:] == ["'sasl,'kafka", ": cdrwa"]
        compared = tool(
            options(guarded),
            "doctor",
            "--bootstrap-server",
            running.bootstrap_servers,
            "--zookeeper",
            place,
            module="main",
        )
        assert "cannot be read" not in compared.stderr + compared.stdout
        assert compared.returncode == 0


def test_a_start_without_the_right_password_ends_with_one_line(
    guarded: ZooKeeperProcess, chroot: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.conf"
    wrong.write_text(
        'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="wrong"; };'
    )
    settings = {"zookeeper.connect": guarded.connect + chroot, "log.dirs": f"{tmp_path}/data", "broker.id": "1"}
    words = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    words += ["--override", "listeners=PLAINTEXT://127.0.0.1:0"]
    cases = {
        f"-Djava.security.auth.login.config={wrong}": "wrong name or password",
        "": "requires a login: set a JAAS file",
    }
    for value, cause in cases.items():
        ended = tool({"KAFKA_OPTS": value}, "broker", *words, module="main")
        assert ended.returncode == 1
        assert cause in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr


def test_open_nodes_become_secured_and_open_again(guarded: ZooKeeperProcess, chroot: str) -> None:
    with broker(guarded, chroot, options(guarded)) as running:
        stranger = tool({}, "zookeeper-security-migration.sh", "--zookeeper.acl=secure")
        assert stranger.returncode == 1
        assert stranger.stderr.startswith("ERROR: No JAAS configuration file has been specified")
        assert migrate(guarded, chroot, "maybe").returncode == 1
        checked = migrate(guarded, chroot, "secure", "--enable.path.check")
        assert (checked.returncode, checked.stdout.splitlines()[-1]) == (1, "Exit the command.")

        async def is_open(store: ZooKeeperStore) -> None:
            for path in ("/", "/config/users", "/brokers/ids/1"):
                assert await rights(store, path) == [ALL_RIGHTS]

        async def is_secure(store: ZooKeeperStore) -> None:
            for path in ("/", "/brokers/ids/1", "/controller", "/cluster/id", "/kafka-acl"):
                assert await rights(store, path) == [CREATOR, READER]
            assert await rights(store, "/config/users") == [CREATOR]
            assert await rights(store, "/consumers") == [ALL_RIGHTS]

        place, found = guarded.connect + chroot, security(options(guarded))
        with_store(place, found, is_open)
        done = migrate(guarded, chroot, "secure")
        assert done.returncode == 0, done.stderr
        with_store(place, found, is_secure)
        with Client(running.bootstrap_servers, client_id="test") as client:
            Admin(client).create_topic("after", partitions=1)
        assert migrate(guarded, chroot, "unsecure").returncode == 0
        with_store(place, found, is_open)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, authority = tmp_path_factory.mktemp("certificates"), Authority()
    return {
        "server": authority.issue("zoo").pem(folder / "server.pem"),
        "trusted": authority.certificate_pem(folder / "trusted.pem"),
        "broker": authority.issue("broker").pkcs12(folder / "broker.p12"),
        "stranger": Authority("Another").issue("stranger").pem(folder / "stranger.pem"),
    }


@pytest.fixture(scope="module")
def over_tls(certificates: dict[str, str]) -> Iterator[ZooKeeperProcess]:
    """Its only port is for TLS and requires a client certificate."""
    properties = {
        "ssl.keyStore.location": certificates["server"],
        "ssl.trustStore.location": certificates["trusted"],
        "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
    }
    with ZooKeeperProcess(properties=properties, is_tls=True) as server:
        yield server


def tls_settings(certificates: Mapping[str, str], **more: str) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": certificates["broker"],
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": certificates["trusted"],
    } | {name.replace("_", "."): text for name, text in more.items()}


def test_a_broker_reaches_zookeeper_over_tls_and_its_certificate_owns_the_nodes(
    over_tls: ZooKeeperProcess, certificates: dict[str, str], chroot: str, tmp_path: Path
) -> None:
    settings = tls_settings(certificates, zookeeper_set_acl="true")
    with broker(over_tls, chroot, {}, **settings) as running:
        with Client(running.bootstrap_servers, client_id="test") as client:
            Admin(client).create_topic("orders", partitions=50)

        async def check(store: ZooKeeperStore) -> None:
            assert await rights(store, "/config/users") == [("x509", "CN=broker", 31)]
            assert len(await store.subtree("/brokers/topics/orders")) == 102

        with_store(over_tls.connect + chroot, broker_security(ZooKeeperKeys(settings), {}), check)
        file = tmp_path / "tls.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = [
            "zookeeper-shell.sh",
            over_tls.connect + chroot,
            "-zk-tls-config-file",
            str(file),
            "ls",
            "/brokers/ids",
        ]
        assert tool({}, *words).stdout.splitlines()[-1] == "[1]"


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"zookeeper.ssl.truststore.location": "stranger"}, "TLS: its certificate is refused"),
        ({"zookeeper.ssl.keystore.location": "stranger"}, "does not accept our certificate"),
        ({"zookeeper.ssl.client.enable": "false"}, "does that port want TLS"),
        ({"host": "localhost.localdomain"}, "certificate is not valid for 'localhost.localdomain'"),
    ],
)
def test_an_untrusted_server_or_certificate_is_named(
    over_tls: ZooKeeperProcess, certificates: dict[str, str], chroot: str, more: dict[str, str], cause: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    texts = tls_settings(certificates) | {name: certificates.get(value, value) for name, value in more.items()}
    host = texts.pop("host", "127.0.0.1")
    connect = over_tls.connect.replace("127.0.0.1", host)
    if host != "127.0.0.1":
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda name, *rest: real("127.0.0.1" if name == host else name, *rest)
        )

    async def body() -> None:
        found = broker_security(ZooKeeperKeys(texts), {})
        store = ZooKeeperStore(connect + chroot, connection_timeout_ms=1500, security=found)
        with pytest.raises(StoreError, match=cause):
            await store.open()

    asyncio.run(body())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_many_answers_at_once_are_all_read(
    over_tls: ZooKeeperProcess, certificates: dict[str, str], chroot: str, version: str
) -> None:
    """Several of them are in one record of TLS, and the system shows only the first as readable."""
    texts = tls_settings(certificates, zookeeper_ssl_enabled_protocols=version)

    async def check(store: ZooKeeperStore) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(store.multi([CreateNode(f"/n{number}", b"x" * 500)]) for number in range(500)))
            assert len(await store.subtree("/")) == 500
        assert store.session_timeout_ms == 6000

    with_store(over_tls.connect + chroot, broker_security(ZooKeeperKeys(texts), {}), check)


@pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")
def test_brokers_and_tools_log_in_by_kerberos(tmp_path: Path) -> None:
    """Keytabs on both sides; existing sessions survive an outage of the KDC."""
    with Kdc() as kdc:
        server_file, client_file = tmp_path / "server.jaas", tmp_path / "client.jaas"
        server_file.write_text(f"Server {{ {kdc.jaas('zookeeper/localhost')} }};\n")
        client_file.write_text(f"Client {{ {kdc.jaas('kafka')} }};\n")
        variables = {**kdc.environment, "KAFKA_OPTS": f"-Djava.security.auth.login.config={client_file}"}
        jaas = ("--jaas", str(server_file))
        with ZooKeeperProcess(tmp_path / "zookeeper", options=jaas, environment=kdc.environment) as server:
            place = f"localhost:{server.port}/kerberos"
            settings = {"zookeeper.connect": place, "broker.id": "1", "zookeeper.set.acl": "true"}
            with Broker(settings, environment=variables) as running:
                shown = tool(variables, "metadata", "get", "/brokers/ids/1", "--zookeeper", place, module="main")
                assert shown.returncode == 0, shown.stderr
                refused = tool(kdc.environment, "metadata", "ls", "/brokers", "--zookeeper", place, module="main")
                assert refused.returncode == 1
                assert "requires a login" in refused.stderr
                kdc.stop()
                with Client(running.bootstrap_servers, client_id="test") as client:
                    Admin(client).create_topic("orders", partitions=1)
