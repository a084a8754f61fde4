"""The configuration of a ZooKeeper server, the origin of its jars, and the processes that are stopped."""

import hashlib
import os
from pathlib import Path

import pytest

from ottla.base.properties import read_properties
from ottla.cli.kafka.server_scripts import find_servers
from ottla.cli.kafka_scripts import SCRIPTS, run_script
from ottla.cli.main import main
from ottla.cli.terminal import ToolError
from ottla.cli.zookeeper import jars as zookeeper_jars
from ottla.cli.zookeeper.jars import ARTIFACTS, Artifact, find_jars, from_maven, has_zookeeper
from ottla.cli.zookeeper.server import (
    ConfigError,
    ServerOptions,
    check_unlocked,
    jvm_options,
    lock_folder,
    make_config,
    to_text,
)

ALONE = ServerOptions(data="/data")


def test_by_default_only_this_machine_connects() -> None:
    config = make_config(ALONE, None)
    assert (config.host, config.port, config.is_open, config.data) == ("127.0.0.1", 2181, False, "/data")
    assert config.properties["admin.enableServer"] == "false"
    assert config.properties["4lw.commands.whitelist"] == "ruok,srvr,mntr"
    assert config.properties["clientPortAddress"] == "127.0.0.1"


def test_a_session_ends_on_time() -> None:
    """ZooKeeper rounds up to the next tick, and grants sessions of 2 to 20 ticks."""
    properties = make_config(ALONE, None).properties
    assert int(properties["tickTime"]) <= 500
    assert int(properties["minSessionTimeout"]) <= 6000 <= 18_000 <= int(properties["maxSessionTimeout"])


def test_options_override_the_file() -> None:
    file = {"dataDir": "/old", "clientPort": "2182", "tickTime": "2000", "admin.enableServer": "true"}
    config = make_config(ServerOptions(), file)
    assert (config.host, config.port, config.is_open) == ("127.0.0.1", 2182, True)
    assert {name: config.properties[name] for name in file} == file
    assert "minSessionTimeout" not in config.properties, "it follows from the file's own tick"
    config = make_config(ServerOptions(port=2183, host="10.0.0.1", data="/new"), file)
    assert (config.host, config.port, config.is_open, config.data) == ("10.0.0.1", 2183, False, "/new")


def test_servers_of_an_ensemble_are_numbered_from_one() -> None:
    config = make_config(ServerOptions(data="/d", server_id=2, ensemble="a:2888:3888, b:2889:3889,c:2890:3890"), None)
    servers = {name: value for name, value in config.properties.items() if name.startswith("server.")}
    assert servers == {"server.1": "a:2888:3888", "server.2": "b:2889:3889", "server.3": "c:2890:3890"}
    assert config.server_id == 2


def test_a_tls_port_replaces_the_plain_one_unless_both_are_requested() -> None:
    config = make_config(ServerOptions(data="/d", secure_port=2281), None)
    assert (config.host, config.port, config.is_tls, config.requires_login) == ("127.0.0.1", 2281, True, True)
    assert "clientPort" not in config.properties
    assert config.properties["secureClientPortAddress"] == "127.0.0.1"
    assert config.properties["serverCnxnFactory"].endswith("NettyServerCnxnFactory")
    config = make_config(ServerOptions(data="/d", port=2181, secure_port=2281), {"ssl.clientAuth": "none"})
    assert (config.port, config.is_tls, config.requires_login) == (2181, False, False)
    assert not make_config(ServerOptions(data="/d", secure_port=2281), {"ssl.clientAuth": "none"}).requires_login


def test_a_jaas_file_requires_logins() -> None:
    config = make_config(ALONE._replace(jaas="jaas.conf"), None)
    assert config.requires_login
    assert config.properties["sessionRequireClientSASLAuth"] == "true"
    assert "authProvider.sasl" in config.properties
    assert not make_config(ALONE._replace(jaas="jaas.conf"), {"sessionRequireClientSASLAuth": "false"}).requires_login


@pytest.mark.parametrize(
    ("wish", "file", "problem"),
    [
        (ServerOptions(), {"clientPort": "2181"}, "the file has no dataDir"),
        (ALONE, {"clientPort": "abc"}, "clientPort=abc is not a port"),
        (ALONE, {"secureClientPort": "0"}, "secureClientPort=0 is not a port"),
        (ALONE._replace(ensemble="a:1"), None, "is not host:port:port"),
        (ALONE._replace(ensemble=":1:2"), None, "is not host:port:port"),
        (ALONE._replace(ensemble="a:1:2,a:1:2"), None, "names a server twice"),
        (ALONE._replace(server_id=1), None, "--server-id is for an ensemble"),
        (ALONE._replace(server_id=3, ensemble="a:1:2,b:1:2"), None, "the ensemble has the servers 1, 2"),
    ],
)
def test_invalid_options_are_reported(wish: ServerOptions, file: dict[str, str] | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_config(wish, file)


def test_the_written_file_reads_as_it_was_meant() -> None:
    properties = {"dataDir": "C:\\zoo", "clientPort": "2181"}
    assert read_properties(to_text(properties)) == properties


def test_the_heap_of_kafkas_scripts_counts() -> None:
    assert "-Xmx512m" in jvm_options({})
    options = jvm_options({"KAFKA_HEAP_OPTS": "-Xmx1g -Xms1g", "SERVER_JVMFLAGS": "-Dx=1"})
    assert {"-Xmx1g", "-Xms1g", "-Dx=1"} <= set(options)
    assert "-Xmx512m" not in options


@pytest.mark.parametrize(
    "words",
    [
        ["zookeeper"],
        ["zookeeper", "--data"],
        ["zookeeper", "--data", "x", "--port", "0"],
        ["zookeeper", "--data", "x", "--port", "99999"],
        ["zookeeper", "--data", "x", "--ensemble", "nonsense"],
        ["zookeeper", "--data", "x", "--server-id", "1"],
        ["zookeeper", "--data", "x", "--secure-port", "2281"],
        ["zookeeper", "--data", "x", "--jaas", "/no/such/file"],
        ["zookeeper", "--data", "x", "--jaas", "/dev/null"],
        ["zookeeper", "--config", "/no/such/file"],
        ["zookeeper", "--config", "/dev/null"],
        ["zookeeper", "--nonsense"],
    ],
)
def test_bad_input_ends_with_2_and_a_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    assert "ottla zookeeper: " in output.err
    assert "Traceback" not in output.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_server_and_is_free_when_that_has_gone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    check_unlocked(folder)
    lock = lock_folder(folder)
    assert os.get_inheritable(lock), "Java must keep it"
    with pytest.raises(ToolError, match=f"another ZooKeeper uses {folder}"):
        lock_folder(folder)
    with pytest.raises(ToolError, match=f"another ZooKeeper uses {folder}"):
        check_unlocked(folder)
    os.close(lock)
    check_unlocked(folder)
    os.close(lock_folder(folder))


def test_kafkas_scripts_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script("zookeeper-server-start.sh", []) == 1
    assert capsys.readouterr().err == "USAGE: zookeeper-server-start.sh [-daemon] zookeeper.properties\n"
    assert run_script("zookeeper-server-start.sh", ["/no/such/file"]) == 1
    assert "/no/such/file does not exist" in capsys.readouterr().err
    assert "zookeeper-server-stop.sh" in SCRIPTS


def process(proc: Path, pid: str, *words: str) -> None:
    (proc / pid).mkdir()
    (proc / pid / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_only_zookeeper_servers_are_stopped(tmp_path: Path) -> None:
    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    process(tmp_path, "10", "/usr/bin/java", "-Xmx1g", main_class, "zoo.cfg")
    process(tmp_path, "11", "java", "kafka.Kafka", "server.properties")
    process(tmp_path, "12", "grep", main_class)
    process(tmp_path, "9", "java", main_class, "other.cfg")
    (tmp_path / "self").mkdir()
    (tmp_path / "13").mkdir()
    assert find_servers(tmp_path) == [9, 10]


def test_jars_of_a_home_must_be_those_of_a_zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "zookeeper-3.4.14.jar").touch()
    with pytest.raises(ToolError, match=r"has no zookeeper-3\.6 or newer"):
        find_jars()
    (tmp_path / "lib" / "zookeeper-3.8.4.jar").touch()
    jars = find_jars()
    assert jars.origin == str(tmp_path)
    assert str(tmp_path / "lib" / "zookeeper-3.8.4.jar") in jars.class_path


def test_which_jar_is_a_zookeeper() -> None:
    assert has_zookeeper([Path("zookeeper-3.9.5.jar")])
    assert not has_zookeeper([Path("zookeeper-jute-3.9.5.jar"), Path("curator-5.0.jar")])


def test_downloads_are_pinned_by_digest() -> None:
    assert all(len(artifact.sha256) == 64 for artifact in ARTIFACTS)
    assert ARTIFACTS[0].path == "org/apache/zookeeper/zookeeper/3.9.5/zookeeper-3.9.5.jar"


def test_jars_are_fetched_once_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = Artifact("org.a", "zookeeper", "3.9.5", hashlib.sha256(b"jar").hexdigest())
    fetched = []

    def fetch(artifact: Artifact) -> bytes:
        fetched.append(artifact.name)
        return b"jar"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(zookeeper_jars, "ARTIFACTS", (jar,))
    monkeypatch.setattr(zookeeper_jars, "_fetch", fetch)
    messages: list[str] = []
    jars = from_maven(messages.append)
    assert [path.read_bytes() for path in jars.paths] == [b"jar"]
    assert len(messages) == 2
    assert from_maven(messages.append) == jars
    assert fetched == ["zookeeper"]
    jars.paths[0].write_bytes(b"damaged")
    with pytest.raises(ToolError, match="is damaged"):
        from_maven(messages.append)


def test_without_a_network_one_line_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", "http://127.0.0.1:1/maven")
    with pytest.raises(ToolError, match=r"cannot be .*go online, set ZOOKEEPER_HOME .* or pip install pyspark"):
        from_maven(lambda _line: None)
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", "file:///etc")
    with pytest.raises(ToolError, match="is not a URL"):
        from_maven(lambda _line: None)
