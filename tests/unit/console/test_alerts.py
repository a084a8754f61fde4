"""Alerts through the API: rules, receivers and silences, rights to change them, and their effects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.test_api import ConsoleFixture, FixedClock, run, signed_in
from tests.unit.monitor.alerts.servers import HttpInbox, http_inbox

from ottla.base.passwords import hash_password
from ottla.client.errors import ClientError
from ottla.console.auth.rights import FULL_GRANTS, Grant
from ottla.console.clusters.group_verdicts import SharedMonitor
from ottla.console.store import Person
from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings
from ottla.monitor.offset_store import ClusterFacts, PartitionFacts

CLUSTER = "/api/clusters/default"
RULES = f"{CLUSTER}/alert-rules"
HEALTHY = ClusterFacts("id", 1, {1: "a:1"}, {}, (PartitionFacts("orders", 0, 1, (1,), (1,)),))
ILL = HEALTHY._replace(controller=-1, partitions=(PartitionFacts("orders", 0, -1, (1,), ()),))
SLACK = {"type": "slack", "url": "https://hooks.slack.example/services/T1/B2/key"}


class FakeMonitor(ClusterMonitor):
    """A monitor whose facts the test sets."""

    def __init__(self) -> None:
        super().__init__(ClusterSettings("default", "a:1"), clock=FixedClock())
        self.is_running = False
        self.is_well(HEALTHY)

    def is_well(self, facts: ClusterFacts) -> None:
        self.facts, self.facts_ms, self.ends_ms = facts, self.clock.now_ms(), self.clock.now_ms()

    def start(self) -> None:
        self.is_running = True

    async def stop(self) -> None:
        self.is_running = False


class Scene(ConsoleFixture):
    """A console with a cluster whose state the test sets."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.monitor = FakeMonitor()
        cluster: Any = self.cluster
        cluster.name = "default"
        cluster.monitor = SharedMonitor(self.make)
        self.problem_of_monitor: ClientError | None = None
        self.console.alerts.allows_private = True

    def make(self) -> ClusterMonitor:
        if self.problem_of_monitor is not None:
            raise self.problem_of_monitor
        return self.monitor

    async def opened(self) -> list[tuple[str, str]]:
        """After a few evaluations."""
        await asyncio.sleep(5)
        _, answer, _ = await self.ask("GET", f"{CLUSTER}/alerts")
        return [(row["rule"], row["subject"]) for row in answer["alerts"]]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def inbox() -> Iterator[HttpInbox]:
    with http_inbox() as made:
        yield made


def texts(inbox: HttpInbox) -> list[str]:
    return [json.loads(posted.body)["text"] for posted in inbox.posted]


def play(scene: Scene, ask: Any) -> None:
    async def main() -> None:
        try:
            await ask()
        finally:
            await scene.console.alerts.stop()

    run(scene, main)


def test_nothing_is_there_and_nothing_runs_until_there_is_a_rule(scene: Scene) -> None:
    async def ask() -> None:
        scene.console.alerts.start()
        assert (await scene.ask("GET", f"{CLUSTER}/alerts"))[1]["count"] == 0
        assert (await scene.ask("GET", f"{CLUSTER}/alert-history"))[1] == {"alerts": []}
        assert not scene.console.alerts.path.exists()
        assert not scene.monitor.is_running

    play(scene, ask)


def test_a_rule_opens_is_silenced_and_goes_with_a_last_word(scene: Scene, inbox: HttpInbox) -> None:
    async def ask() -> None:
        body = {"type": "slack", "url": f"http://127.0.0.1:{inbox.port}/"}
        assert (await scene.ask("PUT", "/api/receivers/ops", body))[0] == 200
        rule = {"when": "controller-gone", "to": ["ops"]}
        status, made, _ = await scene.ask("PUT", f"{RULES}/no%20controller", {"rule": rule})
        assert (status, made["rule"]["when"]) == (200, "controller-gone")
        assert await scene.opened() == []
        assert scene.monitor.is_running
        scene.monitor.is_well(ILL)
        assert await scene.opened() == [("no controller", "controller")]
        assert [text.split()[0] for text in texts(inbox)] == ["OPEN"]
        refused = await scene.ask("DELETE", "/api/receivers/ops")
        assert (refused[0], refused[1]["error"]) == (409, "IN_USE")
        assert (await scene.ask("DELETE", f"{RULES}/no%20controller"))[0] == 204
        assert await scene.opened() == []
        assert [text.split()[0] for text in texts(inbox)] == ["OPEN", "CLOSED"]
        (row,) = (await scene.ask("GET", f"{CLUSTER}/alert-history"))[1]["alerts"]
        assert (row["rule"], row["kind"], row["closed_ms"] is None) == ("no controller", "", False)

        scene.monitor.is_well(HEALTHY)
        await scene.ask("PUT", f"{RULES}/again", {"rule": rule})
        silence = {"rule": "again", "minutes": 60}
        assert (await scene.ask("POST", f"{CLUSTER}/alert-silences", {**silence, "rule": "other"}))[0] == 404
        assert (await scene.ask("POST", f"{CLUSTER}/alert-silences", {**silence, "minutes": 0}))[0] == 400
        _, made, _ = await scene.ask("POST", f"{CLUSTER}/alert-silences", silence)
        scene.monitor.is_well(ILL)
        assert await scene.opened() == [("again", "controller")]
        assert (await scene.ask("GET", f"{CLUSTER}/alerts"))[1]["alerts"][0]["is_silenced"]
        assert len(inbox.posted) == 2
        assert (await scene.ask("DELETE", f"{CLUSTER}/alert-silences/{made['id']}"))[0] == 204
        await scene.opened()
        assert [text.split()[0] for text in texts(inbox)] == ["OPEN", "CLOSED", "OPEN"]

    play(scene, ask)


def test_the_end_goes_to_the_notified_receiver_after_the_rule_names_another(scene: Scene, inbox: HttpInbox) -> None:
    async def ask() -> None:
        for name in ("a", "b"):
            await scene.ask(
                "PUT", f"/api/receivers/{name}", {"type": "webhook", "url": f"http://127.0.0.1:{inbox.port}/{name}"}
            )
        rule = {"when": "leaderless", "to": ["a"]}
        _, made, _ = await scene.ask("PUT", f"{RULES}/r", {"rule": rule})
        scene.monitor.is_well(ILL)
        assert await scene.opened() == [("r", "partitions")]
        await scene.ask("PUT", f"{RULES}/r", {"rule": {**rule, "to": ["b"]}, "before": made["rule"]})
        scene.monitor.is_well(HEALTHY)
        assert await scene.opened() == []
        assert [posted.path for posted in inbox.posted] == ["/a", "/a"]

    play(scene, ask)


def test_a_cluster_that_cannot_be_watched_says_why_and_closes_nothing(scene: Scene) -> None:
    async def ask() -> None:
        scene.problem_of_monitor = ClientError("a package is missing")
        await scene.ask("PUT", f"{RULES}/r", {"rule": {"when": "controller-gone"}})
        assert await scene.opened() == []
        assert (await scene.ask("GET", f"{CLUSTER}/alerts"))[1]["problem"] == "a package is missing"

    play(scene, ask)


def test_pipelines_belong_to_the_cluster_that_the_console_was_started_for(scene: Scene, tmp_path: Path) -> None:
    async def ask() -> None:
        scene.console.pipelines_folder = tmp_path / "pipelines"
        folder = scene.console.pipelines_folder / "page-views" / "_run"
        folder.mkdir(parents=True)
        status = {"pid": 1, "process_start": 1, "host": "elsewhere", "state": "failed", "reason": "no Java"}
        (folder / "status.json").write_text(json.dumps(status))
        await scene.ask("PUT", f"{RULES}/runs", {"rule": {"when": "pipeline"}})
        assert await scene.opened() == [("runs", "pipeline page-views")]
        assert not scene.monitor.is_running  # no rule needs the monitor of the cluster
        await scene.ask("POST", f"{CLUSTER}/alert-silences", {"rule": "runs", "minutes": 5})
        assert scene.console.alerts.active_silences().popitem()[1].cluster == "-"
        scene.console.pipelines_cluster = "other"
        refused = await scene.ask("PUT", f"{RULES}/more", {"rule": {"when": "pipeline"}})
        assert (refused[0], "belong to the cluster other" in refused[1]["message"]) == (400, True)

    play(scene, ask)


def test_rules_go_with_their_cluster(scene: Scene) -> None:
    async def ask() -> None:
        scene.monitor.is_well(ILL)
        await scene.ask("PUT", f"{RULES}/r", {"rule": {"when": "controller-gone"}})
        await scene.ask("POST", f"{CLUSTER}/alert-silences", {"rule": "r", "minutes": 5})
        assert await scene.opened() == [("r", "controller")]
        await scene.console.alerts.delete_cluster("default")
        assert await scene.opened() == []
        rules = (await scene.ask("GET", RULES))[1]
        assert (rules["rules"], rules["silences"], scene.monitor.is_running) == ([], [], False)

    play(scene, ask)


def test_an_invalid_alert_file_is_reported_on_the_page(scene: Scene) -> None:
    async def ask() -> None:
        scene.console.alerts.path.write_bytes(b"no database, but long enough to be looked at as one" * 50)
        scene.console.alerts.start()
        await asyncio.sleep(1)
        assert "is not a file of alerts" in (await scene.ask("GET", f"{CLUSTER}/alerts"))[1]["problem"]
        assert (await scene.ask("PUT", f"{RULES}/r", {"rule": {"when": "controller-gone"}}))[0] == 409

    play(scene, ask)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{RULES}/r", {"rule": {"when": "lag", "to": ["missing"]}}),
        (f"{RULES}/r", {"rule": {"when": "lag", "for": "soon"}}),
        (f"{RULES}/r", {"rule": {"when": "lag", "for": "9" * 400}}),
        (f"{RULES}/r", {"rule": {"when": "lag", "above": -1}}),
        (f"{RULES}/r", {"rule": {"when": "disk", "below": "a little"}}),
        (f"{RULES}/r", {"rule": {"when": "nonsense"}}),
        (f"{RULES}/r", {"rule": {"when": "lag", "group": "*" * 301}}),
        (f"{RULES}/r", {"rule": {"when": "verdict", "status": []}}),
        (f"{RULES}/*", {"rule": {"when": "lag"}}),
        (f"{RULES}/a%2Fb", {"rule": {"when": "lag"}}),
        (f"{RULES}/{'x' * 101}", {"rule": {"when": "lag"}}),
        ("/api/receivers/r", {"type": "slack", "url": "file:///etc/passwd"}),
        ("/api/receivers/r", {"type": "slack", "url": "https://user:word@a.example/"}),
        ("/api/receivers/r", {"type": "slack", "url": "https://a.example/********"}),
        ("/api/receivers/r", {**SLACK, "allow-private": True}),
        ("/api/receivers/r", {"type": "mail", "server": "a", "from": "a@b\r\nBcc: c", "to": ["x"]}),
        ("/api/receivers/r", {"type": "mail", "server": "a", "from": "a@b", "to": ["x"], "port": 70_000}),
        ("/api/receivers/r", {"type": "pigeon", "url": "https://a.example/"}),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(scene: Scene, path: str, body: object) -> None:
    async def ask() -> None:
        status, answer, _ = await scene.ask("PUT", path, body)
        assert status == 400, answer
        assert not scene.console.alerts.path.exists()

    play(scene, ask)


def test_the_second_of_two_concurrent_changes_is_a_conflict(scene: Scene) -> None:
    async def ask() -> None:
        first = {"when": "lag", "above": 5}
        _, made, _ = await scene.ask("PUT", f"{RULES}/r", {"rule": first})
        assert (await scene.ask("PUT", f"{RULES}/r", {"rule": first}))[1]["error"] == "RULE_ALREADY_EXISTS"
        second = {"rule": {**first, "above": 6}, "before": made["rule"]}
        assert (await scene.ask("PUT", f"{RULES}/r", second))[0] == 200
        assert (await scene.ask("PUT", f"{RULES}/r", second))[1]["error"] == "CHANGED_MEANWHILE"

    play(scene, ask)


def test_secrets_are_not_shown_and_go_nowhere_else(scene: Scene) -> None:
    async def ask() -> None:
        mail = {
            "type": "mail",
            "server": "m.example",
            "from": "a@b",
            "to": ["c@d"],
            "username": "u",
            "password": "word",
        }
        for name, body in (("slack", SLACK), ("mail", mail), ("ding", {**SLACK, "type": "dingtalk", "secret": "SEC1"})):
            assert (await scene.ask("PUT", f"/api/receivers/{name}", body))[0] == 200
        rows = {row["name"]: row["receiver"] for row in (await scene.ask("GET", "/api/receivers"))[1]["receivers"]}
        assert rows["slack"]["url"] == "https://hooks.slack.example/********"
        shown = json.dumps(rows) + json.dumps((await scene.ask("GET", "/api/audit"))[1])
        assert not any(word in shown for word in ("B2", "SEC1", '"word"'))

        async def put(name: str, **changes: object) -> int:
            body = {key: value for key, value in rows[name].items() if key != "allow-private"}
            return (await scene.ask("PUT", f"/api/receivers/{name}", {**body, **changes}))[0]

        assert await put("mail", to=["e@f"]) == 200  # the password stays
        kept = scene.console.alerts.receivers
        assert (kept["mail"].password, kept["mail"].to) == ("word", ["e@f"])
        assert await put("mail", server="evil.example") == 400
        assert await put("slack") == 200
        assert kept["slack"].url == SLACK["url"]
        assert await put("ding", url="https://evil.example/x") == 400
        assert await put("ding", url="https://evil.example/x", secret="other") == 200

    play(scene, ask)


def test_private_addresses_are_refused_unless_they_are_allowed(scene: Scene, inbox: HttpInbox) -> None:
    async def ask() -> None:
        await scene.ask("PUT", "/api/receivers/r", {"type": "webhook", "url": f"http://127.0.0.1:{inbox.port}/"})
        scene.console.alerts.allows_private = False
        status, answer, _ = await scene.ask("POST", "/api/receivers/r/trials")
        assert (status, answer["error"]) == (502, "NOT_TAKEN")
        assert "private address" in answer["message"]
        scene.console.alerts.allows_private = True
        assert (await scene.ask("POST", "/api/receivers/r/trials"))[0] == 204
        assert len(inbox.posted) == 1
        inbox.status = 500
        assert (await scene.ask("POST", "/api/receivers/r/trials"))[1]["message"] == "127.0.0.1 answers 500"

    play(scene, ask)


def test_every_role_allows_its_operations(tmp_path: Path) -> None:
    people = (
        Person("root", hash_password("root's password"), list(FULL_GRANTS)),
        Person("olga", hash_password("olga's password"), [Grant("operator", "default")]),
        Person("oleg", hash_password("oleg's password"), [Grant("operator", "default", "test-*")]),
        Person("vera", hash_password("vera's password"), [Grant("viewer", "default", "test-*")]),
    )
    scene = Scene(tmp_path, needs_sign_in=True, people=people)

    async def ask() -> None:
        cookies = {person.name: await signed_in(scene, person.name) for person in people}

        async def status(person: str, method: str, path: str, body: object = None) -> int:
            return (await scene.ask(method, path, body, cookie=cookies[person]))[0]

        rule = {"rule": {"when": "leaderless"}}
        assert [await status(name, "PUT", f"{RULES}/{name}", rule) for name in cookies] == [200, 200, 403, 403]
        assert [await status(name, "GET", "/api/receivers") for name in cookies] == [200, 403, 403, 403]
        assert [await status(name, "PUT", "/api/receivers/r", SLACK) for name in cookies] == [200, 403, 403, 403]
        silence = {"rule": "root", "minutes": 5}
        silenced = [await status(name, "POST", f"{CLUSTER}/alert-silences", silence) for name in cookies]
        assert silenced == [200, 200, 403, 403]
        scene.monitor.is_well(ILL)
        await asyncio.sleep(5)
        counts = [(await scene.ask("GET", f"{CLUSTER}/alerts", cookie=cookies[name]))[1]["count"] for name in cookies]
        assert counts == [2, 2, 0, 0]  # the partitions name topics that not all callers may see

    play(scene, ask)
