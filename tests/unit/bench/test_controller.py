"""bench.controller plays a real controller: what it measures has happened."""

from __future__ import annotations

import asyncio

from bench.controller import Loop, Meter, fail_over, fill, join, measure_events, settle, take_over
from bench.played_cluster import PlayedCluster


def test_a_small_cluster_is_measured() -> None:
    async def scene() -> None:
        cluster = PlayedCluster(5)
        await cluster.start()
        loop = Loop()
        meter = Meter(cluster, loop)
        try:
            filled = await fill(cluster, 100, meter)
            assert filled["writes"] == 2.3, "a node and a state a partition, and three nodes a topic of ten"
            await settle(cluster)
            found = await measure_events(cluster, meter, 2)
            assert [found[name]["writes"] for name in ("ISR change", "leader change", "partition added")] == [1, 1, 3]
            cluster.begin_polls()
            await asyncio.sleep(0)
            lost = await fail_over(cluster, meter)
            assert lost["led"] > 0
            assert lost["writes"] >= lost["led"], "a state node for each partition, and for each ISR"
            assert lost["bytes_per_broker"] > 0
            cluster.end_polls()
            assert (await join(cluster, meter))["bytes"] > 100 * 40
            assert (await take_over(cluster, meter))["writes"] > 0, "what the old controller led has other leaders"
            await cluster.stop()
        finally:
            loop.end()

    asyncio.run(asyncio.wait_for(scene(), 30))
