"""`ottla up --brokers 3`: its folders, its settings, its banner."""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.cli.commands import up
from ottla.cli.processes import up_cluster
from ottla.cli.processes.up_cluster import (
    ClusterPlan,
    ClusterScreen,
    cluster_children,
    highest_broker_number,
    prepare_cluster_folder,
)
from ottla.cli.terminal import ToolError
from ottla.cli.zookeeper.server import lock_folder


def plan(data: Path, brokers: int = 3, **details: object) -> ClusterPlan:
    given = {"data": str(data), "port": 21_700, "brokers": brokers, "no_auto_create": False, "override": []}
    given["secure"] = False
    return ClusterPlan(argparse.Namespace(**(given | {"zookeeper_port": 21_790} | details)))


def test_three_brokers_have_ids_ports_and_folders_of_their_own(tmp_path: Path) -> None:
    settings = [plan(tmp_path).settings(index) for index in range(3)]
    assert [each["broker.id"] for each in settings] == ["1", "2", "3"]
    assert [each["listeners"] for each in settings] == [f"PLAINTEXT://127.0.0.1:{21_700 + index}" for index in range(3)]
    assert [Path(each["log.dirs"]).name for each in settings] == ["broker-1", "broker-2", "broker-3"]
    assert {each["zookeeper.connect"] for each in settings} == {"127.0.0.1:21790"}


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_any_one_broker_may_die(tmp_path: Path, brokers: int, replicas: str, in_sync: str) -> None:
    settings = plan(tmp_path, brokers).settings(0)
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == replicas
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync


def test_overrides_of_the_user_win(tmp_path: Path) -> None:
    settings = plan(tmp_path, override=["default.replication.factor=1"], no_auto_create=True).settings(1)
    assert settings["default.replication.factor"] == "1"
    assert settings["auto.create.topics.enable"] == "false"


def test_metrics_take_free_ports_unless_the_first_is_given(tmp_path: Path) -> None:
    def ports(*override: str) -> list[str]:
        return [plan(tmp_path, override=list(override)).settings(index)["ottla.metrics.port"] for index in range(3)]

    assert "0" not in ports(), "after a restart the console must find them where they were"
    assert len(set(ports())) == 3
    assert ports("ottla.metrics.port=9404") == ["9404", "9405", "9406"]
    assert ports("ottla.metrics.port=-1") == ["-1", "-1", "-1"]


def test_folders_are_made_for_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare_cluster_folder(data, 3, "broker")
    assert sorted(path.name for path in data.iterdir()) == ["broker-1", "broker-2", "broker-3", "zookeeper"]
    assert {path.stat().st_mode & 0o777 for path in data.iterdir()} == {0o700}
    prepare_cluster_folder(data, 4, "broker")  # one more
    assert highest_broker_number(data) == 4


def test_a_cluster_does_not_lose_brokers_by_a_slip(tmp_path: Path) -> None:
    prepare_cluster_folder(tmp_path, 3, "broker")
    with pytest.raises(ToolError, match="holds a cluster of 3 brokers: ottla up --brokers 3"):
        prepare_cluster_folder(tmp_path, 2, "broker")
    with pytest.raises(ToolError, match="holds a cluster of 3 brokers: ottla up --brokers 3"):
        up.run(["--data", str(tmp_path)])


def test_foreign_folders_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(ToolError, match="holds other files"):
        prepare_cluster_folder(tmp_path, 3, "broker")
    (tmp_path / "notes").unlink()
    (tmp_path / "broker").mkdir()
    with pytest.raises(ToolError, match="data of a single broker"):
        prepare_cluster_folder(tmp_path, 3, "broker")


@contextmanager
def taken_port() -> Iterator[int]:
    """A port in use; the one below it is free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with suppress(OSError):
                socket.create_server(("127.0.0.1", port - 1)).close()
                yield port
                return


def test_a_port_in_use_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with taken_port() as port:
        with pytest.raises(ToolError, match=rf"port {port} .* is in use.*--port {port - 1 + 100}"):
            up_cluster.check_ports(plan(tmp_path, port=port - 1))
        with pytest.raises(ToolError, match="--zookeeper-port"):
            up_cluster.check_ports(plan(tmp_path, zookeeper_port=port))


def test_invalid_ports_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"ports 65535 to 65537 of 3 brokers go past 65535: .* 65533 at most"):
        up_cluster.check_ports(plan(tmp_path, port=65_535))
    with pytest.raises(ToolError, match="--zookeeper-port 21702 is one of the brokers' ports"):
        up_cluster.check_ports(plan(tmp_path, zookeeper_port=21_702))
    assert plan(tmp_path, port=2180, zookeeper_port=0).zookeeper_port not in (2180, 2181, 2182)


def test_the_message_suggests_stopping_only_own_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, data = tmp_path / "proc", tmp_path / "data"
    (proc / "10").mkdir(parents=True)
    monkeypatch.setattr(up_cluster, "PROC", proc)
    with taken_port() as port:
        taken = plan(data, port=port - 1)
        for folder, has_hint in ((tmp_path / "other", False), (data / "broker-1", True)):
            words = ["python3", "-m", "ottla.cli.main", "broker", "--override", f"log.dirs={folder}"]
            (proc / "10" / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
            with pytest.raises(ToolError) as problem:
                up_cluster.check_ports(taken)
            assert (f"ottla stop --data {data}" in str(problem.value)) == has_hint
            assert ("ottla stop" in str(problem.value)) == has_hint


def test_a_folder_in_use_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_cluster_folder(tmp_path, 3, "broker")
    lock = lock_folder(tmp_path / "zookeeper")
    monkeypatch.setattr(up, "check_ports", lambda _plan: None)
    try:
        with pytest.raises(ToolError, match=f"another ZooKeeper uses {tmp_path}/zookeeper"):
            up.run(["--brokers", "4", "--data", str(tmp_path)])
    finally:
        os.close(lock)
    assert highest_broker_number(tmp_path) == 3


def test_brokers_need_zookeeper_and_not_each_other(tmp_path: Path) -> None:
    zookeeper, *brokers = cluster_children(plan(tmp_path))
    assert zookeeper.name == "ZooKeeper"
    assert all(broker.depends_on is zookeeper and broker.is_pool_member for broker in brokers)
    assert not zookeeper.is_pool_member


def test_the_banner_is_printed_when_all_are_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    screen = ClusterScreen(plan(tmp_path))
    zookeeper, *brokers = cluster_children(screen.plan)
    assert screen.on_line(zookeeper, "ottla zookeeper ready on 127.0.0.1:21790")
    assert not screen.on_line(brokers[1], "something to tell")
    for number, broker in enumerate(brokers, 1):
        log = f"[2026-11-15 20:02:10,927] INFO metrics on http://127.0.0.1:4000{number}/metrics (ottla.broker)"
        assert not screen.on_line(broker, log)
        assert "is up" not in capsys.readouterr().out
        assert screen.on_line(broker, f"ottla broker {number} ready on 127.0.0.1:{21_699 + number}")
    shown = capsys.readouterr().out
    assert re.search(
        r"a cluster of 3 brokers.*127\.0\.0\.1:21700,127\.0\.0\.1:21701,127\.0\.0\.1:21702", shown, re.DOTALL
    )
    assert re.search(r"metrics +http://127\.0\.0\.1:40001/metrics\n +http://127\.0\.0\.1:40002/metrics\n", shown)
    assert f"(one broker: ottla stop --data {tmp_path} --node-id 2)" in shown
    screen.on_line(brokers[1], "something to tell")
    assert capsys.readouterr().err == "broker 2: something to tell\n"


def test_only_warnings_are_shown_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["[2026-11-15 20:02:10,927] INFO all is well (ottla)", "[2026-11-15 20:02:10,927] WARN look (ottla)"]
    for shows_all, shown in ((False, lines[1:]), (True, lines)):
        screen = ClusterScreen(plan(tmp_path), shows_all=shows_all)
        broker = cluster_children(screen.plan)[1]
        for line in lines:
            assert not screen.on_line(broker, line)
        assert capsys.readouterr().err.splitlines() == [f"broker 1: {line}" for line in shown]
