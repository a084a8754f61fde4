"""Brokers of an older version in a cluster at a level that they do not support."""

from __future__ import annotations

import json

import pytest
from tests.unit.controller.controller_harness import broker
from tests.unit.controller.ensemble import MemberStore
from tests.unit.controller.test_membership import Member, Scene, poll, run, until

from ottla.base.errors import Error
from ottla.controller import tree
from ottla.controller.decisions.features import FeatureUpdate, UpgradeType, decide_feature_updates
from ottla.controller.decisions.ottla_version import (
    LEVEL_MAX,
    LEVEL_MIN,
    OTTLA_VERSION_FEATURE,
    SUPPORTED,
    cluster_level,
)
from ottla.controller.image import NO_CONTROLLER
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreUnusableError

OLD = 3


class OlderBroker:
    """Registers and takes part in elections as brokers without levels do."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.store = MemberStore(scene.ensemble, scene.clock)

    async def register(self) -> None:
        await self.store.open()
        data = tree.encode_broker(broker(OLD), 0)
        assert json.loads(data)["features"] == {}
        await self.store.multi([CreateNode(tree.broker_path(OLD), data, is_ephemeral=True)])
        self._scene.answering.add(9000 + OLD)

    async def be_elected(self) -> None:
        epoch = self._node(tree.CONTROLLER_EPOCH)
        await self.store.multi(
            [
                DeleteNode(tree.CONTROLLER, self._node(tree.CONTROLLER).version),
                CreateNode(tree.CONTROLLER, tree.encode_controller(OLD, 0), is_ephemeral=True),
                SetNode(tree.CONTROLLER_EPOCH, str(int(epoch.data) + 1).encode(), epoch.version),
            ]
        )

    def _node(self, path: str) -> Node:
        node = self._scene.ensemble.tree.get(path)
        assert node is not None
        return node


async def two_and_an_older(scene: Scene) -> tuple[Member, Member, OlderBroker]:
    one, two = await scene.start(1), await scene.start(2)
    await until(lambda: 2 in one.image.brokers)
    older = OlderBroker(scene)
    await older.register()
    return one, two, older


async def set_level(member: Member, wanted: int, kind: UpgradeType) -> None:
    registered = member.controller.versions.registered.values()
    update = [FeatureUpdate(OTTLA_VERSION_FEATURE, wanted, kind)]
    await member.controller.change(
        lambda image: decide_feature_updates(image, update, SUPPORTED, {OTTLA_VERSION_FEATURE: LEVEL_MIN}, registered)
    )


def test_a_new_cluster_begins_at_the_highest_level_and_one_that_is_there_keeps_its_own() -> None:
    async def new(scene: Scene) -> None:
        one = await scene.start(1)
        assert cluster_level(one.image) == LEVEL_MAX
        assert tree.decode_broker(1, scene.node("/brokers/ids/1") or b"", 0).features == SUPPORTED

    async def known(scene: Scene) -> None:
        store = MemberStore(scene.ensemble, scene.clock)
        await store.multi([CreateNode("/cluster"), CreateNode(tree.CLUSTER_ID, tree.encode_cluster_id("abc"))])
        one = await scene.start(1)
        assert (cluster_level(one.image), one.image.cluster_id) == (LEVEL_MIN, "abc")

    run(new)
    run(known)


def test_an_older_broker_is_not_counted_on_and_gets_no_metadata(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        one, _, _ = await two_and_an_older(scene)
        await until(lambda: OLD in one.controller.versions.registered)
        answer = await poll(one, scene, OLD, level_max=LEVEL_MIN)
        assert (answer.error_code, answer.deltas) == (Error.UNSUPPORTED_VERSION, [])
        assert sorted(one.image.brokers) == [1, 2]
        sentence = "broker 3 is refused: this cluster runs at ottla.version=2, and it supports only 1"
        assert sentence in (answer.error_message or "")
        await one.controller.reconcile_brokers(one.membership.watches.read_brokers)
        assert caplog.text.count(sentence) == 1, "once in each of its lives"
        assert (await poll(one, scene, 2)).error_code == Error.NONE

    run(play)


def test_it_is_counted_on_as_soon_as_the_level_is_lowered_and_then_the_level_stays() -> None:
    async def play(scene: Scene) -> None:
        one, _, _ = await two_and_an_older(scene)
        await until(lambda: one.controller.versions.has_refused)
        await set_level(one, LEVEL_MIN, UpgradeType.SAFE_DOWNGRADE)
        await until(lambda: OLD in one.image.brokers)
        assert (await poll(one, scene, OLD, level_max=LEVEL_MIN)).error_code == Error.NONE
        with pytest.raises(Exception, match="Broker 3 does not support it"):
            await set_level(one, LEVEL_MAX, UpgradeType.UPGRADE)

    run(play)


def test_a_controller_that_steps_down_offers_its_place_and_an_older_broker_cannot_take_it() -> None:
    async def play(scene: Scene) -> None:
        one, two, _ = await two_and_an_older(scene)
        await until(lambda: one.controller.versions.has_refused)
        seen: list[int] = []
        watcher = MemberStore(scene.ensemble, scene.clock)
        gone = tree.encode_controller(-9, 0)
        watcher.watch_node(
            tree.CONTROLLER, lambda _: seen.append(tree.decode_controller(scene.node(tree.CONTROLLER) or gone))
        )
        await one.membership.resign_before_shutdown()
        await until(lambda: two.membership.is_controller)
        assert one.membership.controller_id in (NO_CONTROLLER, 2)
        await until(lambda: 2 in seen)
        assert set(seen) <= {NO_CONTROLLER, 2}, "it is never gone"

    run(play)


def test_without_an_older_broker_the_place_is_free_at_once() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await one.membership.resign_before_shutdown()
        assert scene.node(tree.CONTROLLER) is None

    run(play)


def test_an_older_broker_that_was_elected_is_deposed() -> None:
    async def play(scene: Scene) -> None:
        one, two, older = await two_and_an_older(scene)
        await older.be_elected()
        await until(lambda: scene.node("/controller_epoch") == b"3")
        await until(lambda: one.membership.is_controller or two.membership.is_controller)
        elected = one if one.membership.is_controller else two
        await until(lambda: sorted(elected.image.brokers) == [1, 2])

    run(play)


def test_at_the_first_level_an_older_broker_may_be_the_controller() -> None:
    async def play(scene: Scene) -> None:
        one, two, older = await two_and_an_older(scene)
        await set_level(one, LEVEL_MIN, UpgradeType.SAFE_DOWNGRADE)
        await older.be_elected()
        await until(lambda: one.membership.controller_id == two.membership.controller_id == OLD)

    run(play)


def test_a_broker_does_not_start_in_a_cluster_that_is_newer_than_it_knows() -> None:
    async def play(scene: Scene) -> None:
        store = MemberStore(scene.ensemble, scene.clock)
        await store.multi([CreateNode(tree.FEATURE, tree.encode_feature({OTTLA_VERSION_FEATURE: 9}))])
        with pytest.raises(StoreUnusableError, match=r"runs at ottla\.version=9, and this broker supports 1 to 2"):
            await scene.start(1)
        assert scene.node("/brokers/ids/1") is None

    run(play)
