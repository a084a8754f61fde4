"""A node that does not lead: forwarding, waiting, and reading before it answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from tests import virtual_time
from tests.unit.registry.nodes import Node

from ottla.registry.election import Election
from ottla.registry.election_protocol import RegistryIdentity
from ottla.registry.forwarder import Forwarder, NotSentError, RawRequest, RawResponse, UnknownOutcomeError
from ottla.registry.http.app import LEADER_SECONDS_MAX

LEADER = "http://leader:8081"
ANSWER = RawResponse(200, [(b"content-type", b"application/json")], b'{"id": 7}')


class Elected:
    """A leadership that the test controls."""

    def __init__(self, *, is_leader: bool = False, leader_url: str | None = LEADER) -> None:
        self.is_leader = is_leader
        self.leader_url = leader_url
        self.term = 1


class Follower(Node):
    """A node whose forwarding fails a given number of times, and then works."""

    def __init__(self, elected: Elected) -> None:
        super().__init__(leadership=elected)
        self.elected = elected
        self.handed_on: list[tuple[RawRequest, str]] = []
        self.failures: list[Exception] = []
        self.app.forward = self.forward
        self.caught_up = 0
        self.log.catch_up = self.catch_up  # type: ignore[method-assign]

    async def forward(self, request: RawRequest, leader: str) -> RawResponse:
        if self.failures:
            raise self.failures.pop(0)
        self.handed_on.append((request, leader))
        return ANSWER

    async def catch_up(self) -> None:
        self.caught_up += 1


def play(story: Callable[[Follower], Awaitable[None]], **elected: object) -> None:
    async def whole() -> None:
        await story(Follower(Elected(**elected)))  # type: ignore[arg-type]

    virtual_time.run(whole())


def test_a_change_goes_to_the_leader_as_it_came() -> None:
    async def story(node: Follower) -> None:
        reply = await node.ask("POST", "/subjects/a%2Fb/versions?normalize=true", {"schema": '"int"'})
        assert (reply.status, reply.body) == (200, {"id": 7})
        ((request, leader),) = node.handed_on
        assert (request.method, request.target, leader) == ("POST", "/subjects/a%2Fb/versions?normalize=true", LEADER)
        assert request.body == b'{"schema": "\\"int\\""}'
        assert not node.log.written

    play(story)


def test_what_could_not_be_sent_is_kept_for_the_next_leader() -> None:
    async def story(node: Follower) -> None:
        node.failures = [NotSentError("gone"), NotSentError("gone")]
        assert (await node.register("s", '"int"')).body == {"id": 7}

    play(story)


def test_the_next_leader_may_be_this_node() -> None:
    async def story(node: Follower) -> None:
        node.failures = [NotSentError("gone")] * 1000
        asking = asyncio.ensure_future(node.register("s", '"int"'))
        await asyncio.sleep(LEADER_SECONDS_MAX / 2)
        node.elected.is_leader = True
        assert (await asking).body == {"id": 1}
        assert node.log.take_overs == 1

    play(story)


def test_a_long_time_without_a_leader() -> None:
    async def story(node: Follower) -> None:
        assert (await node.register("s", '"int"')).code == 50004
        node.elected.leader_url = LEADER
        node.failures = [NotSentError("gone")] * 1000
        assert (await node.register("s", '"int"')).code == 50003

    play(story, leader_url=None)


def test_a_lost_answer_is_not_asked_for_twice() -> None:
    async def story(node: Follower) -> None:
        node.failures = [UnknownOutcomeError("cut")]
        assert (await node.register("s", '"int"')).code == 50003
        assert not node.handed_on

    play(story)


def test_a_request_is_handed_on_once() -> None:
    async def story(node: Follower) -> None:
        headers = [(b"x-forward", b"true")]
        reply = await node.ask("POST", "/subjects/s/versions", {"schema": '"int"'}, headers)
        assert reply.code == 50004
        assert not node.handed_on

    play(story)


def test_what_others_were_answered_is_read_first() -> None:
    async def story(node: Follower) -> None:
        node.elected.is_leader = True
        await node.register("s", '"int"')
        node.elected.is_leader = False
        node.caught_up = 0
        assert (await node.ask("GET", "/schemas/ids/1")).status == 200
        assert node.caught_up == 0  # the schema of an ID never changes
        assert (await node.ask("GET", "/subjects")).body == ["s"]
        assert node.caught_up == 1
        assert (await node.ask("GET", "/schemas/ids/2")).code == 40403
        assert node.caught_up == 2

    play(story)


def test_without_the_cluster_an_unknown_id_is_not_reported_missing() -> None:
    async def story(node: Follower) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        node.log.catch_up = never  # type: ignore[method-assign]
        assert (await node.ask("GET", "/schemas/ids/2")).code == 50001
        assert (await node.ask("GET", "/subjects")).body == []

    play(story)


def test_a_new_term_takes_the_topic_over_again() -> None:
    async def story(node: Follower) -> None:
        for term in (1, 1, 2):
            node.elected.term = term
            await node.register(f"s{term}", '"int"')
        assert node.log.take_overs == 2

    play(story, is_leader=True)


def test_requests_do_not_wait_for_a_paused_leader() -> None:
    async def story(node: Follower) -> None:
        async def never(_: RawRequest, leader: str) -> RawResponse:
            await asyncio.Event().wait()
            return ANSWER

        node.app.forward = never
        asking = asyncio.ensure_future(node.register("s", '"int"'))
        await asyncio.sleep(10)
        assert not asking.done()  # it still leads, so its response may come
        node.elected.leader_url = "http://other:8081"
        await asyncio.sleep(3)
        assert (await asking).code == 50003

    play(story)


def test_a_cancelled_forwarding_frees_its_thread() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as leader:
            forwarding = Forwarder()
            request = RawRequest("POST", "/", [], b"")
            asking = asyncio.ensure_future(forwarding(request, f"http://127.0.0.1:{leader.getsockname()[1]}"))
            connection, _ = await asyncio.to_thread(leader.accept)
            with connection:
                assert (await asyncio.to_thread(connection.recv, 10_000)).startswith(b"POST / ")
                asking.cancel()
                while await asyncio.to_thread(connection.recv, 10_000):
                    pass
            forwarding.close()

    asyncio.run(story())


def test_an_election_goes_on_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        metadata = None

        def close(self) -> None: ...

    monkeypatch.setattr("ottla.registry.election.RETRY_SECONDS", 0)
    election = Election(lambda _: Nothing(), "group", RegistryIdentity("127.0.0.1", 1))  # type: ignore[arg-type, return-value]
    joined: list[int] = []

    def join() -> None:
        joined.append(1)
        if len(joined) == 1:
            raise IndexError
        election._stopping.set()

    monkeypatch.setattr(election, "_join", join)
    election._run()
    assert len(joined) == 2
