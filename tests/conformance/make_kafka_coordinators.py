"""Makes tests/data/kafka-4.3/coordinators.tar.gz: what Apache Kafka's coordinators keep of groups and transactions.

    python -m tests.conformance.make_kafka_coordinators talk HOST:PORT
    python -m tests.conformance.make_kafka_coordinators pack LOG_DIR       (when that broker has stopped)

Needs a fresh Apache Kafka with `offsets.topic.num.partitions=1` and `transaction.state.log.num.partitions=1` that is
stopped within half a minute: before the sessions of its members end.
test_kafka_coordinators.py says what must be found in the files.
"""

import sys
import tarfile
import time
from pathlib import Path

from tests.conformance.group_calls import GroupCalls, find_coordinator, subscription
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import Producer, TransactionCalls

TARGET = Path(__file__).parents[1] / "data" / "kafka-4.3" / "coordinators.tar.gz"
INTERVAL_SECONDS = 1.2
FOLDERS = ("__consumer_offsets-0", "__transaction_state-0", "orders-0", "orders-1", "orders-2")
KEPT = (".log", ".metadata", "leader-epoch-checkpoint")


def talk(bootstrap: str) -> None:
    with Peer(bootstrap) as peer:
        for key_type in (0, 1):
            while find_coordinator(peer, "x", key_type).error_code:
                time.sleep(0.1)
        topic_id = peer.create_topic("orders", 3)
        time.sleep(0.5)
        classic_groups(peer)
        new_groups(peer, topic_id)
        transactions(peer)


def pack(log_dir: Path) -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(TARGET, "w:gz") as archive:
        for path in sorted(path for folder in FOLDERS for path in (log_dir / folder).iterdir()):
            if path.name.endswith(KEPT):
                archive.add(path, path.relative_to(log_dir))
        archive.add(log_dir / "meta.properties", "meta.properties")


def classic_groups(peer: Peer) -> None:
    stable = GroupCalls(peer, "classic-stable")
    member, generation = stable.stable_member(
        session_ms=1_800_000, instance_id="one", protocols={"range": subscription("orders")}
    )
    stable.commit({"orders": {0: 10, 1: 11}}, member_id=member, generation=generation, instance_id="one")
    empty = GroupCalls(peer, "classic-empty")
    member, generation = empty.stable_member()
    empty.commit({"orders": {0: 20}}, member_id=member, generation=generation, metadata="note")
    empty.leave((member, None))
    simple = GroupCalls(peer, "simple")
    simple.commit({"orders": {0: 30, 1: 31}})
    simple.commit({"orders": {0: 32}}, version=2)
    simple.delete_offsets({"orders": [1]})
    deleted = GroupCalls(peer, "deleted")
    deleted.commit({"orders": {0: 40}})
    deleted.delete()


def new_groups(peer: Peer, topic_id: object) -> None:
    two = GroupCalls(peer, "new-two")
    two.consumer_join("A", ["orders"], rack_id="here", rebalance_ms=600_000)
    time.sleep(INTERVAL_SECONDS)
    two.consumer_join("B", ["orders"])
    two.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]})  # B waits for what A has not given up
    two.commit({"orders": {0: 50}}, member_id="A", generation=2)
    away = GroupCalls(peer, "new-static")
    away.consumer_join("S", ["orders"], instance_id="one", assignor="range")
    away.consumer_heartbeat("S", -2, instance_id="one")
    pattern = GroupCalls(peer, "new-regex")
    pattern.consumer_join("R", None, regex="ord.*")
    time.sleep(INTERVAL_SECONDS)
    pattern.consumer_heartbeat("R", 1, owned={})
    empty = GroupCalls(peer, "new-empty")
    empty.consumer_join("E", ["orders"])
    empty.commit({"orders": {2: 60}}, member_id="E", generation=2)
    empty.consumer_heartbeat("E", -1)
    deleted = GroupCalls(peer, "new-deleted")
    deleted.consumer_join("D", ["orders"])
    deleted.consumer_heartbeat("D", -1)
    deleted.delete()


def transactions(peer: Peer) -> None:
    TransactionCalls(peer, "empty").start(timeout_ms=30_000)
    committed = TransactionCalls(peer, "committed")
    who = committed.start()
    committed.add(who, {"orders": [0]})
    committed.produce(who, "orders", 0, [b"committed"], version=11)
    committed.add_offsets(who, "in-transaction")
    committed.commit_offsets(who, "in-transaction", {"orders": {0: 70}}, 4)
    committed.end(who, commit=True, version=4)
    committed.wait_for_state("CompleteCommit")
    aborted = TransactionCalls(peer, "aborted")
    who = aborted.start()
    aborted.produce(who, "orders", 0, [b"aborted"])
    aborted.commit_offsets(who, "in-transaction", {"orders": {0: 71}})
    ended = aborted.end(who, commit=False)
    aborted.wait_for_state("CompleteAbort")
    aborted.produce(Producer(ended.producer_id, ended.producer_epoch), "orders", 0, [b"second"])
    aborted.end(Producer(ended.producer_id, ended.producer_epoch), commit=True)
    aborted.wait_for_state("CompleteCommit")
    opened = TransactionCalls(peer, "open")
    who = opened.start(timeout_ms=900_000)
    opened.produce(who, "orders", 0, [b"open"])
    opened.commit_offsets(who, "in-transaction", {"orders": {1: 72}})


if __name__ == "__main__":
    if sys.argv[1] == "talk":
        talk(sys.argv[2])
    else:
        pack(Path(sys.argv[2]))
