"""Addresses of other brokers, and timeouts of their connections."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.two_brokers import AskingBroker, ControllerBroker, with_two_brokers

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.cluster.peers import InterBrokerCalls, Peers, inter_broker_endpoint
from ottla.controller.image import BrokerImage, Endpoint
from ottla.network import peer_transport
from ottla.network.peer import PeerError
from ottla.protocol.messages.inter_broker import AllocateProducerIdsRequest, AllocateProducerIdsResponse

QUESTION = AllocateProducerIdsRequest(broker_id=2)


def settings(**texts: str) -> BrokerSettings:
    return BrokerSettings({"node.id": "2", **{key.replace("_", "."): text for key, text in texts.items()}})


@pytest.mark.parametrize(
    ("texts", "port"),
    [
        ({}, 1),
        ({"inter_broker_listener_name": "INSIDE"}, 2),
        ({"inter_broker_listener_name": "inside"}, 2),
        ({"security_inter_broker_protocol": "SSL"}, 3),
        ({"security_inter_broker_protocol": "SASL_SSL"}, None),
        ({"inter_broker_listener_name": "NOWHERE"}, None),
    ],
)
def test_the_inter_broker_listener_is_named_or_has_the_protocol(texts: dict[str, str], port: int | None) -> None:
    ends = {
        "OTHER": Endpoint("h", 3, "SSL"),
        "INSIDE": Endpoint("h", 2, "PLAINTEXT"),
        "PLAINTEXT": Endpoint("h", 1, "PLAINTEXT"),
    }
    found = inter_broker_endpoint(BrokerImage(1, ends, None, 0), settings(**texts))
    assert (found.port if found is not None else None) == port


def test_the_first_listener_of_the_protocol_is_used() -> None:
    broker = BrokerImage(1, {"A": Endpoint("h", 5, "SSL"), "B": Endpoint("h", 6, "PLAINTEXT")}, None, 0)
    found = inter_broker_endpoint(broker, settings())
    assert found is not None
    assert found.port == 6


def test_the_response_timeout_follows_the_settings(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.is_silent = True
        peers = Peers(settings(request_timeout_ms="150"), two.images, two.peers._poller)
        started = asyncio.get_running_loop().time()
        with pytest.raises(PeerError) as caught:
            await peers.call(1, QUESTION, AllocateProducerIdsResponse)
        assert caught.value.is_timeout
        assert asyncio.get_running_loop().time() - started == pytest.approx(0.15)
        peers.close()

    with_two_brokers(tmp_path, play)


def test_the_connection_timeout_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    async def hang(*_: Any) -> None:
        started = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(60)
        finally:
            limits.append(round(asyncio.get_running_loop().time() - started, 2))

    async def play(_: ControllerBroker, two: AskingBroker) -> None:
        wanted = settings(socket_connection_setup_timeout_ms="40", socket_connection_setup_timeout_max_ms="100")
        peers = Peers(wanted, two.images, two.peers._poller)
        monkeypatch.setattr(peer_transport, "connect_socket", hang)
        for _ in range(4):
            with pytest.raises(PeerError) as caught:
                await peers.call(1, QUESTION, AllocateProducerIdsResponse)
            assert caught.value.is_timeout
            assert not caught.value.is_sent
        assert limits == [0.04, 0.08, 0.1, 0.1]
        peers.close()

    with_two_brokers(tmp_path, play)


def test_a_restarted_broker_gets_a_new_connection(tmp_path: Path) -> None:
    async def play(_: ControllerBroker, two: AskingBroker) -> None:
        await two.peers.call(1, QUESTION, AllocateProducerIdsResponse)
        (shared,) = two.peers._shared.values()
        reborn = two.image.brokers[1]._replace(epoch=99)
        two.images.publish(two.image.with_brokers({1: reborn}))
        assert shared.is_closed
        await two.peers.call(1, QUESTION, AllocateProducerIdsResponse)
        two.images.publish(two.image.with_brokers({}))
        with pytest.raises(PeerError, match="not known"):
            await two.peers.call(1, QUESTION, AllocateProducerIdsResponse)

    with_two_brokers(tmp_path, play)


def test_each_purpose_has_its_own_connection_until_all_are_closed(tmp_path: Path) -> None:
    async def play(_: ControllerBroker, two: AskingBroker) -> None:
        calls = InterBrokerCalls(two.peers)
        for purpose in ("markers", "partitions", "markers"):
            await calls.call(1, purpose, QUESTION, AllocateProducerIdsResponse)
        assert repr(two.peers) == "<Peers 0 shared, 2 own>"
        calls.close()
        assert repr(two.peers) == "<Peers 0 shared, 0 own>"
        with pytest.raises(PeerError, match="broker 1 is not known"):
            await InterBrokerCalls(None).call(1, "markers", QUESTION, AllocateProducerIdsResponse)

    with_two_brokers(tmp_path, play)
