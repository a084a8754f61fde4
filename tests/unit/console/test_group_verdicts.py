"""Verdicts on the groups of a cluster in virtual time, with a fake monitor and cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.virtual_time import LoopClock, run

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import Operation
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console.clusters.group_verdicts import (
    CHECK_MS,
    EVALUATE_SECONDS,
    NOT_ALLOWED,
    REQUEST_LIFETIME_MS,
    RETRY_SECONDS,
    PartitionVerdict,
    SharedMonitor,
    VerdictWatch,
    offsets_topic_problem,
)
from ottla.monitor.lag_evaluation import GroupVerdict, Status
from ottla.monitor.lag_evaluation import PartitionVerdict as Judged
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class Scene:
    """A monitor with one group, and a cluster that allows or denies reading commits."""

    def __init__(self) -> None:
        self.is_ready = False
        self.problem = ""
        self.refusal = ""
        self.broken: ClientError | None = None
        self.made = self.started = self.stopped = self.judged = self.news = 0
        self.watch = VerdictWatch("default", LoopClock(), self.ask, SharedMonitor(self.make), self.tell)  # type: ignore[arg-type,return-value]

    async def ask(self, question: Callable[[Client], str]) -> str:
        assert question is offsets_topic_problem
        return self.refusal

    def make(self) -> Scene:
        if self.broken is not None:
            raise self.broken
        self.made += 1
        return self

    def tell(self) -> None:
        self.news += 1

    # As a monitor

    def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1

    def groups(self) -> list[str]:
        return ["billing", "gone"]

    def age_ms(self) -> int:
        return 40

    async def verdict_in_slices(self, group: str) -> GroupVerdict | None:
        if group == "gone":
            return None
        self.judged += 1
        partitions = (
            Judged("orders", 0, "", "", Status.OK, None, None, 0, 1.0, 0),
            Judged("orders", 1, "", "", Status.OK, None, None, 9, 1.0, 7_000, True, Status.STALL),
        )
        return GroupVerdict("default", group, Status.OK, 1.0, partitions, None, 9, 0, Status.ERR)


def test_nothing_starts_before_a_request_and_verdicts_follow_past_commits() -> None:
    async def main() -> None:
        scene = Scene()
        await asyncio.sleep(100)
        assert scene.made == 0
        scene.watch.request()
        await asyncio.sleep(2)
        assert (scene.started, scene.watch.state.is_ready, scene.watch.state.groups) == (1, False, {})
        scene.is_ready = True
        await asyncio.sleep(1)
        seen = scene.watch.state
        assert (seen.is_ready, seen.problem, scene.news) == (True, "", seen.version)
        assert seen.at_ms <= scene.watch.clock.now_ms() - 40
        billing = seen.groups["billing"]
        assert list(seen.groups) == ["billing"]
        assert billing[:3] == ("ERR", 7_000, True)
        assert billing.partitions[TopicPartition("orders", 1)] == PartitionVerdict("STALL", 7_000, True)
        await scene.watch.wait_stopped()
        assert scene.stopped == 1

    run(main())


def test_groups_are_evaluated_only_while_requested() -> None:
    async def main() -> None:
        scene = Scene()
        scene.is_ready = True
        scene.watch.request()
        await asyncio.sleep(REQUEST_LIFETIME_MS / 1000 + 10)
        before = scene.judged
        assert before >= REQUEST_LIFETIME_MS / 1000 / EVALUATE_SECONDS / 2
        await asyncio.sleep(600)
        assert scene.judged == before
        scene.watch.request()
        assert not scene.watch.state.is_ready, "what was true ten minutes ago was shown as current"
        await asyncio.sleep(0.1)
        assert (scene.judged, scene.made, scene.watch.state.is_ready) == (before + 1, 1, True)
        await scene.watch.wait_stopped()

    run(main())


def test_without_the_right_to_read_commits_the_reason_is_reported_and_retried() -> None:
    async def main() -> None:
        scene = Scene()
        scene.is_ready, scene.refusal = True, NOT_ALLOWED
        scene.watch.request()
        await asyncio.sleep(1)
        assert (scene.made, scene.watch.state.is_ready, scene.watch.state.problem) == (0, False, NOT_ALLOWED)
        scene.refusal = ""
        await asyncio.sleep(RETRY_SECONDS + 1)
        assert (scene.made, scene.watch.state.is_ready, scene.watch.state.problem) == (1, True, "")
        scene.refusal = "the cluster is away"
        await asyncio.sleep(CHECK_MS / 1000 + 5)
        assert (scene.stopped, scene.watch.state.is_ready) == (0, True), "it may come back"
        scene.refusal = NOT_ALLOWED
        await asyncio.sleep(CHECK_MS / 1000 + 5)
        assert (scene.stopped, scene.watch.state.groups, scene.watch.state.problem) == (1, {}, NOT_ALLOWED)
        await scene.watch.wait_stopped()

    run(main())


def test_a_missing_library_is_reported() -> None:
    async def main() -> None:
        scene = Scene()
        scene.broken = ClientError("the monitor needs the package confluent-kafka")
        scene.watch.request()
        await asyncio.sleep(1)
        assert scene.watch.state.problem == "the monitor needs the package confluent-kafka"
        await scene.watch.wait_stopped()

    run(main())


def test_what_the_cluster_says_about_the_topic_of_commits() -> None:
    class Answering:
        def __init__(self, error: Error, operations: int) -> None:
            topic = MetadataResponseTopic(error_code=error, name="x", topic_authorized_operations=operations)
            self.answer = MetadataResponse(topics=[topic])

        def call(self, request: object, response: object) -> MetadataResponse:
            return self.answer

    def problem(error: Error, operations: int) -> str:
        return offsets_topic_problem(Answering(error, operations))  # type: ignore[arg-type]

    assert problem(Error.NONE, 1 << Operation.READ | 1 << Operation.DESCRIBE) == ""
    assert problem(Error.NONE, 1 << Operation.DESCRIBE) == NOT_ALLOWED
    assert problem(Error.TOPIC_AUTHORIZATION_FAILED, 0) == NOT_ALLOWED
    assert problem(Error.UNKNOWN_TOPIC_OR_PARTITION, 0) == "", "no commits yet"
    assert problem(Error.NONE, -(2**31)) == "", "an old broker does not tell"
