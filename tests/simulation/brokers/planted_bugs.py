"""Mistakes that the simulation of real brokers must find: each is a small change to a driver.

`python -m tests.simulation.brokers.planted_bugs [NAME]` plays seeds with that change until a promise is broken.
"""

from __future__ import annotations

from pathlib import Path

from tests.simulation.hunting import Change, PlantedBug, hunt_all, play

SEEDS_MAX = 2_000

CONNECTION = "network/connection.py"
PEER = "network/peer.py"
DISPATCH = "broker/dispatch.py"
ISR_CHANGES = "broker/replica_manager/alter_partition_manager.py"
FETCHER = "broker/replica_manager/replica_fetchers.py"
MARKERS = "broker/coordinator_service/transaction_markers.py"
WAITING = "broker/delayed_produce.py"
SHARD = "coordination/shard.py"
RUNTIME = "coordination/runtime.py"
MEMBERSHIP = "controller/cluster/membership.py"
FEED = "controller/cluster/feed.py"
LOGINS = "broker/security/server_authenticator.py"
HEALING = "controller/self_balancing"
DELETED_TOPICS = "broker/coordinator_service/sweeps.py"

BUGS = [
    PlantedBug(
        "a request of more than 64 KiB keeps a second place in the line of replies when it is decoded",
        (
            Change(
                DISPATCH,
                "            answer = served.handle_long(held[0], context)\n",
                "            context.responder._pending_reply = None\n"
                "            answer = served.handle_long(held[0], context)\n",
            ),
        ),
        "calm",
    ),
    PlantedBug(
        "ISR changes lose all proposals but the first",
        (
            Change(
                ISR_CHANGES,
                "            self._wakeup.set()\n        return proposals\n",
                "            self._wakeup.set()\n        return proposals[:1]\n",
            ),
        ),
        "lag",
    ),
    PlantedBug(
        "ISR changes end with the first refusal",
        (
            Change(
                ISR_CHANGES,
                "            return\n        self.failures += 1\n",
                "            return\n        raise asyncio.CancelledError\n        self.failures += 1\n",
            ),
        ),
        "lag",
    ),
    PlantedBug(
        "a fetcher ends in silence when it loses its leader",
        (
            Change(
                FETCHER,
                "                except PeerError as problem:\n"
                "                    await self._on_disconnect(problem)\n",
                "                except OSError as problem:\n                    await self._on_disconnect(problem)\n",
            ),
            Change(
                FETCHER,
                'tasks.spawn_restarting(self._run, f"copying from broker {self.leader_id}")',
                "asyncio.get_running_loop().create_task(self._run())",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "a follower does not cut its log where it parts from its leader's",
        (
            Change(
                FETCHER,
                "        if not partition.truncate_on_divergence(position, epoch, end_offset):\n",
                "        if True:\n            return\n"
                "        if not partition.truncate_on_divergence(position, epoch, end_offset):\n",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "garbage in the state of a partition stops the controller",
        (
            Change(
                MEMBERSHIP,
                "        loaded = await load_in_thread(nodes, self._images.image)\n",
                "        for path, node in nodes.items():\n"
                '            if path.endswith("/state"):\n'
                "                tree.decode_partition_state(path, node.data)\n"
                "        loaded = await load_in_thread(nodes, self._images.image)\n",
            ),
        ),
        "garbage",
    ),
    PlantedBug(
        "answers overtake each other on a connection",
        (
            Change(
                CONNECTION,
                "        if self.pending:\n            place = PendingReply",
                "        if False:\n            place = PendingReply",
            ),
        ),
        "clients",
    ),
    PlantedBug(
        "what a full socket did not take is sent again from its beginning",
        (
            Change(
                CONNECTION,
                "                        out[0] = memoryview(chunk)[sent:]\n",
                "                        out[0] = memoryview(chunk)\n",
            ),
        ),
        "small",
    ),
    PlantedBug(
        "frames that had to wait are not looked at again when there is space",
        (
            Change(
                CONNECTION,
                "        if self.has_deferred_frame and not self.is_closed:\n"
                "            self._consume(self.buffered_bytes)\n",
                "        if False:\n            self._consume(self.buffered_bytes)\n",
            ),
        ),
        "clients",
    ),
    PlantedBug(
        "a connection that was lost is taken for a good one",
        (
            Change(
                PEER,
                "        if self._state is not PeerState.CLOSED:\n            self._change_state(PeerState.IDLE)\n",
                "",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "a produce with acks=all is answered when the leader has it",
        (
            Change(
                WAITING,
                "return Error.NONE if partition.is_replicated(item.last_offset) else Error.REQUEST_TIMED_OUT",
                "return Error.NONE",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "a produce does not see that another has led meanwhile",
        (
            Change(
                WAITING,
                "        error = self._result_of(item)\n",
                "        error = Error.NONE\n",
            ),
        ),
        "network",
    ),
    PlantedBug(
        "a coordinator does not wait for its records to be replicated before it is told that they are",
        (Change(SHARD, "        if not self.partition.is_replicated(last_offset):\n", "        if False:\n"),),
        "calm",
    ),
    PlantedBug(
        "a coordinator answers before its records are replicated",
        (
            Change(
                SHARD,
                "            while self._waiting and self.partition.is_replicated(self._waiting[0][0]):\n",
                "            while self._waiting:\n",
            ),
        ),
        "mixed",
    ),
    PlantedBug(
        "a coordinator that leads no more does not tell who waits",
        (
            Change(
                SHARD,
                "        for decision in abandoned:\n            for reply in decision.replies:\n",
                "        for decision in ():\n            for reply in decision.replies:\n",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "commits that were gathered are answered and not written",
        (
            Change(
                SHARD,
                "        if gathered:\n            self._write(",
                "        for decision in gathered:\n            self._complete(decision)\n"
                "        if False:\n            self._write(",
            ),
        ),
        "clients",
    ),
    PlantedBug(
        "deadlines of groups are not kept after the first",
        (
            Change(
                RUNTIME,
                "            tasks.notify_safely(shard.tick)\n            self._schedule_wakeup(shard)\n",
                "            tasks.notify_safely(shard.tick)\n",
            ),
        ),
        "calm",
    ),
    PlantedBug(
        "markers that could not be written are not written later",
        (
            Change(
                MARKERS,
                "            self._unsent.append(place)\n            self._pause()\n",
                "            self._pause()\n",
            ),
        ),
        "mixed",
    ),
    PlantedBug(
        "offsets of a transaction do not count when it is committed",
        (
            Change(
                MARKERS,
                "            self.complete_group_offsets(partition.name.topic, partition.name.partition, order)\n",
                "",
            ),
        ),
        "calm",
    ),
    PlantedBug(
        "a transaction whose end could not be written down stays open",
        (
            Change(
                MARKERS,
                "            if self._remaining == 0:\n"
                "                self._writer.complete_transaction(self._shard, self._order)\n",
                "            if self._remaining < 0:\n"
                "                self._writer.complete_transaction(self._shard, self._order)\n",
            ),
        ),
        "calm",
    ),
    PlantedBug(
        "after a new session no broker registers again",
        (
            Change(
                MEMBERSHIP,
                '            self._work_queue.enqueue("registration")\n'
                '            self._work_queue.enqueue("controller")\n',
                '            self._work_queue.enqueue("controller")\n',
            ),
        ),
        "sessions",
    ),
    PlantedBug(
        "the broker's epoch outlives its session",
        (
            Change(
                MEMBERSHIP,
                "                self._resign()\n                self.broker_epoch = NOT_REGISTERED\n",
                "                self._resign()\n",
            ),
            Change(
                MEMBERSHIP,
                "            self._resign()\n            self.broker_epoch = NOT_REGISTERED\n        elif",
                "            self._resign()\n        elif",
            ),
        ),
        "sessions",
    ),
    PlantedBug(
        "polls are not told of news",
        (
            Change(
                FEED,
                "        await asyncio.wait([self._news], timeout=seconds_max)\n",
                "        await asyncio.sleep(4 * seconds_max)\n",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "a watcher that has missed a change is told that there is none",
        (
            Change(
                FEED,
                "        new = (delta for delta in self._deltas if delta.sequence > sequence)\n",
                "        if sequence >= self.sequence - 1:\n            return []\n"
                "        new = (delta for delta in self._deltas if delta.sequence > sequence)\n",
            ),
        ),
        "kill",
    ),
    PlantedBug(
        "a partition that moves away stays where it was",
        (
            Change(
                "broker/metadata_publisher.py",
                "        if leaving:\n            yield from",
                "        if False:\n            yield from",
            ),
        ),
        "moves",
    ),
    PlantedBug(
        "a machine that lost its power says that it has all that it had",
        (
            Change(
                "storage/broker_epoch_file.py",
                'if boot_id and fields.get("boot_id") == boot_id else UNKNOWN',
                "if boot_id else UNKNOWN",
            ),
        ),
        "power",
    ),
    PlantedBug(
        "a login that has expired goes on",
        (Change(LOGINS, "        login.connection.client.is_authenticated = False\n", ""),),
        "passwords",
    ),
    PlantedBug(
        "who has failed to log in is served",
        (
            Change(
                LOGINS,
                "        failed = self._fail(login, context)\n        responder = context.responder.defer()\n",
                "        failed = self._fail(login, context)\n"
                "        context.client.is_authenticated = True\n        return response\n"
                "        responder = context.responder.defer()\n",
            ),
        ),
        "passwords",
    ),
    PlantedBug(
        "an old password counts until the broker is started again",
        (
            Change(
                "broker/security/login_setup.py",
                "        text = self._images.image.user_configs.get(name, {}).get(mechanism)\n",
                "        known = self.__dict__.setdefault('known', {})\n"
                "        text = known.setdefault(name, self._images.image.user_configs.get(name, {}).get(mechanism))\n"
                "        if text is None:\n"
                "            known.pop(name)\n",
            ),
        ),
        "passwords",
    ),
    PlantedBug(
        "healing counts on where it was when a broker has been back in between",
        (
            Change(
                f"{HEALING}/broker_absences.py",
                "        if any(broker in living for broker in self.away_ms):\n",
                "        if False:\n",
            ),
            Change(
                f"{HEALING}/broker_absences.py",
                "    return {broker: before[broker] + counted_ms if broker in before else 0 for broker in brokers}\n",
                "    return {**before, **{one: before[one] + counted_ms if one in before else 0 for one in brokers}}\n",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "healing begins too early",
        (
            Change(
                f"{HEALING}/broker_absences.py",
                "            if ms >= after_ms and self._observed_ms",
                "            if 2 * ms >= after_ms and 2 * self._observed_ms",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "healing forgets the throttle of the replicas that are copied to",
        (
            Change(
                f"{HEALING}/replica_throttles.py",
                "        for key, row in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, move.added)):\n",
                "        for key, row in ((LEADER_REPLICAS, sources),):\n",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "healing leaves the rates of brokers behind",
        (
            Change(
                f"{HEALING}/replica_throttles.py",
                "            elif is_ours:\n                config.pop(key)\n"
                "        if config != now:\n            changed[name]",
                "            elif is_ours:\n                pass\n        if config != now:\n            changed[name]",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "healing moves replicas to a broker that is about to stop",
        (
            Change(
                f"{HEALING}/heal_steps.py",
                "            if broker not in situation.liveness.shutting_down and broker",
                "            if broker",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "the next controller does not know which moves are healing's",
        (
            Change(
                "controller/self_balancing/journal_driver.py",
                "            node = self._form.read(found, has_parent=has_parent)\n",
                "            node = self._form.read(found, has_parent=has_parent)._replace(journal=self._form.empty)\n",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "a move of healing that has ended stays in the journal",
        (
            Change(
                f"{HEALING}/move_steps.py",
                "    return set(partition.adding_replicas) == set(move.added) and ",
                "    return set(partition.adding_replicas) <= set(move.added) and ",
            ),
            Change(
                f"{HEALING}/move_steps.py",
                "set(partition.removing_replicas) == set(move.removed)\n",
                "set(partition.removing_replicas) <= set(move.removed)\n",
            ),
        ),
        "healing",
    ),
    PlantedBug(
        "offsets of a deleted topic are still being forgotten when it is made anew",
        (Change(DELETED_TOPICS, "                sweep.names -= found\n", ""),),
        "renewal",
    ),
    PlantedBug(
        "offsets of a deleted topic stay when it is made anew",
        (
            Change(
                DELETED_TOPICS,
                "            tasks.notify_safely(self._void_offsets, shard, found)\n",
                "            pass\n",
            ),
        ),
        "renewal",
    ),
    PlantedBug(
        "what is left of a deleted topic is void for the coordinator that was there, not for the next",
        (
            Change(
                DELETED_TOPICS,
                "            self._groups.execute(shard, decision)\n",
                "            for record in decision.records:\n"
                "                shard.machine.replay(record.key, record.value, None)\n",
            ),
        ),
        "renewal",
    ),
    PlantedBug(
        "what is committed for a topic that was made anew is forgotten with what is void",
        (
            Change(
                "groups/offset_expiration.py",
                "            if not self._offsets.is_of_deleted_topic(topic, kept):\n",
                "            if topic not in self._offsets.deleted_topics:\n",
            ),
        ),
        "renewal",
    ),
    PlantedBug(
        "what is void counts again before it is forgotten",
        (
            Change(
                "groups/offset_expiration.py",
                "        void = dict(offsets.deleted_topics)\n",
                "        offsets.deleted_topics.clear()\n        void = dict(offsets.deleted_topics)\n",
            ),
        ),
        "renewal",
    ),
    PlantedBug(
        "a coordinator that leads next does not forget the rest of what was committed for a deleted topic",
        (Change(DELETED_TOPICS, "            self._begin(shard, set(self._deleted))\n", "            pass\n"),),
        "renewal",
    ),
    PlantedBug(
        "healing forgets the throttle of what is copied anew at home",
        (
            Change(
                f"{HEALING}/heal_steps.py",
                "    slow = throttle_configs(image, journal.throttle, moves, situation",
                "    slow = throttle_configs(image, journal.throttle, [m for m in moves if not m.is_same_broker], "
                "situation",
            ),
        ),
        "folders",
    ),
    PlantedBug(
        "what was copied anew at home stays in the journal",
        (
            Change(
                f"{HEALING}/move_steps.py",
                "        return is_held and not set(move.added) <= set(partition.isr)\n",
                "        return is_held\n",
            ),
        ),
        "folders",
    ),
]


def hunt(bug: PlantedBug, folder: Path, seeds: int = SEEDS_MAX) -> str | None:
    """Plant the bug into a copy of the source and play; what was found, or None."""
    return play(bug, folder, "tests.simulation.brokers.play", str(seeds), str(bug.first_seed), bug.theme)


if __name__ == "__main__":
    hunt_all(BUGS, hunt)
