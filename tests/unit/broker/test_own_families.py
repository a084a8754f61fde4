"""Numbers that Kafka has no name for."""

import asyncio

import virtual_time
from ottla.base import tasks
from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.monitoring.own_families import own_families
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.controller.image import MetadataImage
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.prometheus import Sample
from ottla.network.poller import Poller
from unit.broker.nodes import node


def told(image: MetadataImage | None = None) -> dict[str, list[Sample]]:
    families = own_families(node(id_=5, image=image), BrokerCounters(), ClientMetrics(), LoopWatch(Poller()), [])
    return {family.name: list(family.samples) for family in families}


def test_who_is_asked_is_told_also_before_the_cluster_is_known() -> None:
    for image, cluster_id in ((None, ""), (MetadataImage(cluster_id="abc"), "abc")):
        labels = dict(told(image)["ottla_info"][0].labels)
        assert (labels["node_id"], labels["cluster_id"]) == ("5", cluster_id)


def test_where_the_time_of_slow_rounds_went_is_told() -> None:
    samples = told()["ottla_loop_slow_seconds_total"]
    assert [dict(sample.labels)["state"] for sample in samples] == ["running", "waiting", "asleep"]


def test_tasks_that_failed_or_were_begun_anew_are_counted() -> None:
    def counts() -> list[float]:
        now = told()
        return [now[f"ottla_tasks_{what}_total"][0].value for what in ("failed", "restarted")]

    async def fail() -> None:
        raise ValueError("a fault of the program")

    async def whole() -> None:
        tasks.start(fail(), "work")
        loop = tasks.keep_running(fail, "a loop")
        await asyncio.sleep(tasks.PAUSE_SECONDS_MIN * 1.5)
        loop.cancel()

    failed, restarted = counts()
    virtual_time.run(whole())
    assert counts() == [failed + 1, restarted + 2]
