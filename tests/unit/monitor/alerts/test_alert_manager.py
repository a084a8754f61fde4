"""Rules, ledger and a real HTTP server together, in virtual time."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.monitor.alerts.servers import HttpInbox, http_inbox
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.base.tasks import spawn_restarting
from ottla.monitor.alerts import alert_manager as alerting_module
from ottla.monitor.alerts.alert_manager import AlertManager, AlertSettings
from ottla.monitor.alerts.alert_states import Condition, Rule, Silence
from ottla.monitor.alerts.delivery import Webhook
from ottla.monitor.alerts.ledger import AlertStore
from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings
from ottla.monitor.lag_evaluation import Commit, GroupVerdict
from ottla.monitor.offset_store import ClusterFacts, TopicFacts

RULES = (
    Rule("gone", Condition.CONTROLLER_GONE, ("ops",)),
    Rule("dead", Condition.BROKER_GONE, ("ops",), for_ms=10_000),
)


@pytest.fixture
def inbox() -> Iterator[HttpInbox]:
    with http_inbox() as made:
        yield made


class Scene:
    """A cluster whose facts the test sets, and alerts about it."""

    def __init__(self, inbox: HttpInbox, path: Path, silences: tuple[Silence, ...] = ()) -> None:
        self.clock = LoopClock()
        self.inbox = inbox
        self.monitor = ClusterMonitor(ClusterSettings("main", "a:1"), clock=self.clock)
        channel = Webhook("slack", f"http://127.0.0.1:{inbox.port}/", allow_private=True)
        settings = AlertSettings(RULES, {"ops": channel}, silences, brokers_wanted={"main": [1]})
        self.alerting = AlertManager(settings, {"main": self.monitor}, AlertStore(path), self.clock)

    async def is_so(self, seconds: int, controller: int = 1, brokers: tuple[int, ...] = (1,)) -> None:
        """Let this many seconds pass; the cluster is seen every second."""
        for _ in range(seconds):
            self.monitor.facts = ClusterFacts("id", controller, dict.fromkeys(brokers, "a:1"), {}, ())
            self.monitor.facts_ms = self.monitor.ends_ms = self.clock.now_ms()
            await asyncio.sleep(1)

    @property
    def texts(self) -> list[str]:
        return [json.loads(posted.body)["text"] for posted in self.inbox.posted]


def test_opening_and_closing_are_sent_once_and_within_seconds(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        scene = Scene(inbox, tmp_path / "a.db")
        scene.alerting.start()
        await scene.is_so(60)
        assert scene.texts == []
        await scene.is_so(4, controller=-1)
        assert len(scene.texts) == 1
        await scene.is_so(60, controller=-1)
        assert len(scene.texts) == 1
        await scene.is_so(4)
        assert [text.split()[0] for text in scene.texts] == ["OPEN", "CLOSED"]
        told = await scene.alerting.status()
        assert told["open"] == []
        await scene.alerting.stop()

    run(main())


def test_a_restart_repeats_no_message_and_loses_none(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        for controller in (-1, -1, 1):
            scene = Scene(inbox, tmp_path / "a.db")
            scene.alerting.start()
            await scene.is_so(10, controller=controller)
            await scene.alerting.stop()
        assert [text.split()[0] for text in scene.texts] == ["OPEN", "CLOSED"]

    run(main())


def test_rejected_messages_are_retried_in_order(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        inbox.status = 503
        scene = Scene(inbox, tmp_path / "a.db")
        scene.alerting.start()
        await scene.is_so(8, controller=-1)
        assert 1 <= len(scene.texts) <= 2
        await scene.is_so(2)  # closed while the opening still waits
        inbox.status = 200
        inbox.posted.clear()
        await scene.is_so(60)
        assert sorted(text.split()[0] for text in scene.texts) == ["CLOSED", "OPEN"]
        unsent = (await scene.alerting.status())["unsent"]
        assert unsent == []
        await scene.alerting.stop()

    run(main())


def test_a_channel_that_never_answers_is_given_up(
    inbox: HttpInbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting_module, "GIVE_UP_MS", 1_800_000)

    async def main() -> None:
        inbox.status = 500
        scene = Scene(inbox, tmp_path / "a.db")
        await scene.is_so(1, controller=-1)
        assert len(await scene.alerting.evaluate()) == 1
        scene.alerting._tasks = [spawn_restarting(scene.alerting._send_loop, "only sending")]
        await asyncio.sleep(3_000)
        tries = len(inbox.posted)
        await asyncio.sleep(1_000)
        (unsent,) = (await scene.alerting.status())["unsent"]
        assert (unsent["problem"], unsent["done_ms"] is None) == ("127.0.0.1 answers 500", False)
        assert len(inbox.posted) == tries <= 12
        await scene.alerting.stop()

    run(main())


def test_a_silence_holds_the_opening_back(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        now = datetime.fromtimestamp(LoopClock().now_ms() / 1000, UTC)
        silence = Silence(rule="gone", end=now.replace(microsecond=0).fromtimestamp(now.timestamp() + 30, UTC))
        scene = Scene(inbox, tmp_path / "a.db", (silence,))
        scene.alerting.start()
        await scene.is_so(25, controller=-1)
        assert scene.texts == []
        await scene.is_so(10, controller=-1)
        assert len(scene.texts) == 1
        await scene.alerting.stop()

    run(main())


def test_an_unreachable_cluster_is_one_alert_and_closes_no_other(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        scene = Scene(inbox, tmp_path / "a.db")
        scene.alerting.start()
        await scene.is_so(10, controller=-1)
        scene.monitor.problem = "a:1 refuses connections"
        await asyncio.sleep(60)
        assert len(scene.texts) == 2
        assert "dead: cluster (main): no broker answers: a:1 refuses connections" in scene.texts[1]
        await scene.is_so(10)
        assert [text.split()[0] for text in scene.texts[2:]] == ["CLOSED"]  # one message for both
        assert len(scene.texts[2].splitlines()) == 2
        await scene.alerting.stop()

    run(main())


def test_a_group_is_judged_again_when_there_is_something_new(inbox: HttpInbox, tmp_path: Path) -> None:
    async def main() -> None:
        scene = Scene(inbox, tmp_path / "a.db")
        store, place = scene.monitor.store, TopicPartition("orders", 0)
        scene.alerting.settings = AlertSettings((Rule("late", Condition.LAG, above=3),))
        store.set_topics({"orders": TopicFacts(UUID(int=1), 1)})
        scene.monitor.has_read_old_commits = True
        judged = []

        async def judge(group: str) -> GroupVerdict | None:
            judged.append(group)
            return store.verdict(group, scene.clock.now_ms())

        scene.monitor.verdict_in_slices = judge  # type: ignore[method-assign]
        await scene.is_so(1)

        def commit(offset: int) -> None:
            now_ms = scene.clock.now_ms()
            store.add_commit("g", place, Commit(offset, now_ms, None, offset), now_ms)

        commit(0)
        store.add_end(place, 10, scene.clock.now_ms())
        assert [event.step for event in await scene.alerting.evaluate()] == ["opened"]
        assert await scene.alerting.evaluate() == []
        assert judged == ["g"]
        await asyncio.sleep(2)
        commit(9)  # the consumer has caught up, and the log was not sampled since
        assert [event.step for event in await scene.alerting.evaluate()] == ["closed"]
        await scene.is_so(1)
        await scene.alerting.evaluate()
        assert judged == ["g"] * 3
        await scene.alerting.stop()

    run(main())
