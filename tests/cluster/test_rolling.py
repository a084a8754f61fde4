"""Maintenance and rolling restarts on a real cluster, under a load: nothing is lost, and every doubt ends the roll."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.broker_restarts import restart_command
from tests.cluster.conftest import Shared
from tests.cluster.test_moves import Load, assert_all_there
from tests.cluster.test_walkthrough import Shell, commands
from tests.conftest import ottla_command

from ottla.cli.main import main
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.testing.cluster import Cluster


@pytest.fixture(scope="module")
def shared_clusters() -> Iterator[Shared]:
    """Of this file alone: a roll looks at all topics, also at those that other tests have left."""
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"rolled-{uuid.uuid4().hex[:8]}"
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic(name, assignment={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    cluster.wait_until_whole([name])
    return name


@pytest.fixture
def restart(cluster: Cluster) -> Iterator[str]:
    """A command as of a service manager."""
    with restart_command(cluster) as command:
        yield command


@pytest.fixture
def roll(cluster: Cluster, tmp_path: Path) -> Callable[..., int]:
    def run(*words: str) -> int:
        state = ["--state", str(tmp_path / "roll.json"), "--bootstrap-server", cluster.bootstrap]
        return main(["cluster", "roll", *words, *state])

    return run


def maintain(cluster: Cluster, *words: str) -> int:
    return main(["cluster", "maintenance", *words, "--bootstrap-server", cluster.bootstrap])


def leaders(cluster: Cluster, topic: str) -> list[int]:
    with Client(cluster.bootstrap) as client:
        (found,) = Admin(client).topics([topic], from_controller=True)
    return [partition.leader for partition in found.partitions]


def epochs(cluster: Cluster) -> dict[int, int]:
    with Client(cluster.bootstrap) as client:
        return {
            broker.broker_id: broker.broker_epoch for broker in describe_cluster(client, from_controller=True).brokers
        }


def test_leaders_leave_under_a_load_and_come_back_as_the_page_says(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, cluster.bootstrap)
    begin, listing, describe, end = commands("Maintenance")
    with Load(cluster.bootstrap, topic) as load:
        load.wait_for(50)
        assert shell.run(begin).startswith("Broker 2 is in maintenance until 20")
        assert leaders(cluster, topic) == [1, 3, 3]
        with Client(cluster.bootstrap) as client:
            assert all(set(each.isr) == {1, 2, 3} for each in Admin(client).topic(topic).partitions)
        load.wait_for(50)
        assert shell.run(listing).startswith("2\t")
        assert "Leader: 2" not in shell.run(describe.replace("orders", topic))
        assert shell.run(end) == "The maintenance of broker 2 is over; it leads 1 partition again.\n"
        assert leaders(cluster, topic) == [1, 2, 3]
        load.wait_for(50)
    assert_all_there(cluster, load)


def test_a_broker_that_is_off_can_be_put_in_maintenance(cluster: Cluster, topic: str) -> None:
    cluster.broker(2).stop()
    assert maintain(cluster, "2", "--for", "10m") == 0
    cluster.broker(2).start()
    cluster.wait_for_isr(topic, 1, [1, 2, 3])
    assert leaders(cluster, topic) == [1, 3, 3]
    assert maintain(cluster, "2", "--end") == 0
    assert leaders(cluster, topic) == [1, 2, 3]


def test_the_last_brokers_keep_leading_and_report_the_reason(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maintain(cluster, "2", "--end") == 0
    assert capsys.readouterr().out == "Broker 2 is not in maintenance.\n"
    for broker in ("1", "2", "3"):
        assert maintain(cluster, broker, "--for", "10m") == 0
    assert "the other replicas in sync are in maintenance, too" in capsys.readouterr().err
    for broker in ("1", "2", "3"):
        assert maintain(cluster, broker, "--end") == 0
    assert capsys.readouterr().out.count("is over") == 3


def test_maintenance_of_an_unknown_broker_or_without_a_limit_is_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maintain(cluster, "77", "--for", "10m") == 1
    assert "no broker 77" in capsys.readouterr().err
    assert maintain(cluster, "2", "--for", "8d") == 2
    assert maintain(cluster, "2") == 2
    assert maintain(cluster, "--end") == 2


def test_three_brokers_are_rolled_under_a_load_as_the_page_says_and_nothing_is_lost(
    cluster: Cluster, topic: str, restart: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, cluster.bootstrap)
    shell.environment["XDG_STATE_HOME"] = str(tmp_path)
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(f"#!/bin/sh\nexec {restart.replace('{id}', '${2#ottla@}')}\n")
    systemctl.chmod(0o755)
    before, controller = epochs(cluster), cluster.controller_id()
    with Load(cluster.bootstrap, topic) as load:
        load.wait_for(50)
        shown, said = (shell.run(command) for command in commands("Rolling restart"))
        load.wait_for(50)
    assert_all_there(cluster, load)
    after = epochs(cluster)
    assert all(after[broker] > before[broker] for broker in before)
    restarted = sorted(after, key=lambda broker: after[broker])
    assert restarted[-1] == controller
    assert [line.split("\t")[0] for line in shown.splitlines()] == list(map(str, restarted))
    assert leaders(cluster, topic) == [1, 2, 3]
    assert [f"broker {broker}: done" in said for broker in (1, 2, 3)] == [True] * 3
    assert not list(tmp_path.glob("ottla/*.json"))
    assert shell.run("ottla cluster maintenance") == ""


def test_a_roll_stops_at_a_failed_command_and_continues_there(
    cluster: Cluster,
    topic: str,
    roll: Callable[..., int],
    restart: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = tmp_path / "key"
    command = f"test -e {key} || {{{{ echo no key >&2; exit 7; }}}}; {restart}"
    wanted = [broker for broker in (1, 2, 3) if broker != cluster.controller_id()]
    before = epochs(cluster)
    assert roll("--command", command, "--brokers", f"{wanted[0]},{wanted[1]}") == 1
    said = capsys.readouterr().err
    assert f"stopped at broker {wanted[0]}: the command for broker {wanted[0]} ended with exit code 7: no key" in said
    assert f"Broker {wanted[0]} stays in maintenance for a while" in said
    assert epochs(cluster) == before
    assert json.loads((tmp_path / "roll.json").read_text())["at"] == wanted[0]
    assert roll("--command", "true {id}") == 2  # another roll, while one has stopped
    cluster.broker(wanted[0]).restart()  # an operator restarts it by hand
    cluster.wait_until_whole([topic])
    by_hand = epochs(cluster)
    key.touch()
    assert roll("--continue") == 0
    after = epochs(cluster)
    assert after[wanted[0]] == by_hand[wanted[0]]
    assert after[wanted[1]] > before[wanted[1]]
    assert not (tmp_path / "roll.json").exists()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--command", "sleep 60; echo {id}", "--timeout", "2s"), "still runs after 2 s"),
        (("--command", "true {id}", "--wait", "3s"), "has not been restarted"),
    ],
)
def test_commands_that_hang_or_do_nothing_stop_a_roll(
    cluster: Cluster,
    topic: str,
    roll: Callable[..., int],
    words: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert roll(*words) == 1
    assert sentence in capsys.readouterr().err
    for broker in ("1", "2", "3"):
        assert maintain(cluster, broker, "--end") == 0


def test_a_command_that_restarts_the_wrong_broker_stops_the_roll(
    cluster: Cluster,
    topic: str,
    roll: Callable[..., int],
    restart: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, right = [broker for broker in (1, 2, 3) if broker != cluster.controller_id()]
    before = epochs(cluster)
    ended = tmp_path / "ended"
    command = f"{restart.replace('{id}', str(wrong))}; sleep 1; touch {ended}"
    assert roll("--command", command, "--brokers", str(right)) == 1
    assert f"broker {wrong}" in capsys.readouterr().err
    assert ended.exists()  # what else it does is not cut off
    assert epochs(cluster)[right] == before[right]
    cluster.wait_until_whole([topic])
    assert maintain(cluster, str(right), "--end") == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_roll_that_is_interrupted_says_what_it_leaves_behind(
    cluster: Cluster, topic: str, tmp_path: Path, number: int, code: int
) -> None:
    broker = next(broker for broker in (1, 2, 3) if broker != cluster.controller_id())
    state = str(tmp_path / "roll.json")
    words = ["--command", "exec sleep 600", "--brokers", str(broker), "--state", state]
    process = subprocess.Popen(
        [*ottla_command(), "cluster", "roll", *words, "--bootstrap-server", cluster.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("the command runs" in line for line in process.stdout)
    process.send_signal(number)
    _, said = process.communicate()
    assert (process.returncode, said.splitlines()) == (
        code,
        [
            f"ottla: the roll was interrupted at broker {broker}. Done: none.",
            f"The command for broker {broker} was ended halfway: see whether the broker runs.",
            f"Broker {broker} stays in maintenance for a while; to end that: ottla cluster maintenance {broker} --end",
            f"Resume with: ottla cluster roll --continue --state {state}",
        ],
    )
    assert maintain(cluster, str(broker), "--end") == 0


def test_the_order_is_shown_and_nothing_is_done(
    cluster: Cluster, roll: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = epochs(cluster)
    assert roll("--command", "restart {id} at {host}:{port}", "--dry-run") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert sorted(row[0] for row in rows) == ["1", "2", "3"]
    assert rows[-1][2] == "controller"
    assert rows[0][3] == f"restart {rows[0][0]} at {rows[0][1]}"
    assert epochs(cluster) == before


def test_a_partition_that_could_not_be_written_meanwhile_stops_a_roll_before_it_begins(
    cluster: Cluster, roll: Callable[..., int], restart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"alone-{uuid.uuid4().hex[:8]}"
    with Client(cluster.bootstrap) as client:
        last = cluster.controller_id()
        Admin(client).create_topic(name, assignment={0: [last]})
        before = epochs(cluster)
        sentence = f"without broker {last} {name}-0 could not be written"
        assert roll("--command", restart, "--dry-run") == 1
        shown = capsys.readouterr()
        assert sentence in shown.err
        assert [line.split("\t")[4] for line in shown.out.splitlines()] == ["", "", f"{name}-0"]
        assert roll("--command", restart, "--dry-run", "--allow-interruption") == 0
        capsys.readouterr()
        assert roll("--command", restart) == 1
        assert sentence in capsys.readouterr().err
        assert epochs(cluster) == before
        assert roll("--continue") == 2  # nothing was begun
        Admin(client).delete_topics([name])
