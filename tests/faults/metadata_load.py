"""Creates, changes, grows, deletes and re-creates topics while the broker is killed, and knows what must be there.

A change that was answered must be there afterwards. One whose answer never came may have happened or not: the broker is
asked later, and either is right, but nothing in between. Each topic holds one record that names its incarnation, so
that the records of a deleted topic are noticed when they come back in the new one of the same name.
"""

import random
import threading
import time
import uuid
from dataclasses import dataclass, replace

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.config_requests import FROM_TOPIC, SET, TOPIC, change, entries
from tests.conformance.peer import Peer
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.raw_batches import batch
from tests.faults.history import History

NAMES = [f"metadata-{number}" for number in range(12)]
CONFIG = "retention.ms"
NO_ANSWER = (ConnectionClosedError, OSError)
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3
RECOVERY_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class TopicState:
    """What is known about a topic."""

    topic_id: uuid.UUID | None  # None: whatever the broker chose when its answer got lost
    partitions: int
    retention_ms: int


class MetadataLoad(threading.Thread):
    """One change after the other until stop(); `answered` counts those that were acknowledged."""

    def __init__(self, bootstrap: str, history: History, seed: int) -> None:
        super().__init__(name="metadata", daemon=True)
        self.answered = 0
        self.in_doubt = 0
        self.expected: dict[str, TopicState | None] = dict.fromkeys(NAMES)
        self._address = bootstrap
        self._history = history
        self._random = random.Random(f"metadata {seed}")
        self._stopping = threading.Event()
        self._marked: dict[str, uuid.UUID] = {}  # the incarnation with a record that is certainly stored
        self._peer: Peer | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                name = self._random.choice(NAMES)
                before = self.expected[name]
                after = self._next_state(before)
                self._attempt(name, before, after)
                time.sleep(0.01)
        except Exception as error:  # noqa: BLE001 (a thread must not die in silence)
            self._history.complain(f"metadata: ended with {error!r}")

    def stop(self) -> None:
        self._stopping.set()
        self.join(RECOVERY_SECONDS_MAX + 10)

    # ---- one change

    def _next_state(self, before: TopicState | None) -> TopicState | None:
        chance = self._random.random()
        if before is None:
            return TopicState(None, self._random.randint(1, 3), self._random.randrange(10**6, 10**9))
        if chance < 0.3:
            return None
        if chance < 0.5 and before.partitions < 6:
            return replace(before, partitions=before.partitions + 1)
        return replace(before, retention_ms=self._random.randrange(10**6, 10**9))

    def _attempt(self, name: str, before: TopicState | None, after: TopicState | None) -> None:
        try:
            after = self._change(self._connected(), name, before, after)
            self.expected[name] = after
            self.answered += 1
            if after is not None and after.topic_id is not None and self._marked.get(name) != after.topic_id:
                self._mark(self._connected(), name, after.topic_id)
        except NO_ANSWER:
            self._disconnect()
            self.in_doubt += 1
            self._settle(name, before, after)

    def _change(self, peer: Peer, name: str, before: TopicState | None, after: TopicState | None) -> TopicState | None:
        """Ask for the change and wait for the answer; the state with the topic id that the broker gave."""
        if after is None:
            self._expect_success("delete", name, peer.delete_topics([name])[name])
        elif before is None:
            return self._create(peer, name, after)
        elif after.partitions != before.partitions:
            request = CreatePartitionsRequest(topics=[(name, after.partitions, None)], timeout_ms=5000)
            self._expect_success("grow", name, peer.ask(request, 3).results[0].error_code)
        else:
            resource = (TOPIC, name, [(CONFIG, SET, str(after.retention_ms))])
            self._expect_success("configure", name, change(peer, resource)[0][0])
        return after

    def _create(self, peer: Peer, name: str, state: TopicState) -> TopicState:
        shape = CreateTopicsRequest.CreatableTopic
        row = shape(
            name=name,
            num_partitions=state.partitions,
            replication_factor=1,
            assignments=[],
            configs=[shape.CreatableTopicConfig(name=CONFIG, value=str(state.retention_ms))],
        )
        answer = peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=5000, validate_only=False), 7).topics[0]
        self._expect_success("create", name, answer.error_code)
        return replace(state, topic_id=answer.topic_id)

    def _expect_success(self, what: str, name: str, error: int) -> None:
        if error:
            self._history.complain(f"metadata: {what} {name} was refused with {error}")

    def _mark(self, peer: Peer, name: str, topic_id: uuid.UUID) -> None:
        answer = peer.produce(name, batch([topic_id.bytes]))
        if answer.error_code:
            self._history.complain(f"metadata: a record for the new topic {name} was refused with {answer.error_code}")
        else:
            self._marked[name] = topic_id

    # ---- after a lost answer

    def _settle(self, name: str, before: TopicState | None, after: TopicState | None) -> None:
        """Find out whether the change has happened; anything but yes or no is a violation."""
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                found = observe(self._connected(), name)
                break
            except NO_ANSWER:
                self._disconnect()
                time.sleep(0.02)
        else:
            self._history.complain(f"metadata: no answer about {name} for {RECOVERY_SECONDS_MAX} s")
            return
        if not any(is_same(found, state) for state in (before, after)):
            self._history.complain(f"metadata: {name} is {found}, neither {before} nor {after}")
        self.expected[name] = found

    def _connected(self) -> Peer:
        if self._peer is None:
            self._peer = Peer(self._address)
        return self._peer

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.connection.close()
            self._peer = None

    # ---- the end

    def violations(self) -> list[str]:
        """Compare everything with what must be there."""
        found = []
        with Peer(self._address) as peer:
            for name, state in self.expected.items():
                now = observe(peer, name)
                if not is_same(now, state):
                    found.append(f"metadata: {name} is {now}, not {state}")
                elif now is not None and now.topic_id is not None:
                    found += self._check_mark(peer, name, now.topic_id)
        return found

    def _check_mark(self, peer: Peer, name: str, topic_id: uuid.UUID) -> list[str]:
        data = bytes(peer.fetch(name, 0, max_wait_ms=0).records or b"")
        if data and topic_id.bytes not in data:
            return [f"metadata: {name} holds records of a topic that was deleted"]
        if not data and self._marked.get(name) == topic_id:
            return [f"metadata: {name} has lost its record"]
        return []


def observe(peer: Peer, name: str) -> TopicState | None:
    """The topic as clients see it now."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=None)]
    row = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12).topics[0]
    if row.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return None
    entry = entries(peer, TOPIC, name, [CONFIG])[CONFIG]
    retention_ms = int(entry.value) if entry.config_source == FROM_TOPIC else -1
    return TopicState(row.topic_id, len(row.partitions), retention_ms)


def is_same(found: TopicState | None, state: TopicState | None) -> bool:
    if found is None or state is None:
        return found is state
    return state == (found if state.topic_id is not None else replace(found, topic_id=None))
