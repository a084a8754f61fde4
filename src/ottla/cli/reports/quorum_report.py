"""The replication state of the metadata quorum as table rows."""

from __future__ import annotations

from ottla.base.names import id_text
from ottla.cli.java.options import OptionError
from ottla.client.cluster import Quorum
from ottla.protocol.messages.cluster import QuorumReplica

COLUMNS = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
UNKNOWN_TIME = -1


def replication_rows(quorum: Quorum, now_ms: int, is_human: bool) -> list[tuple[str, ...]]:
    """The leader first, then followers, then observers."""
    leader = leader_of(quorum)
    followers = [voter for voter in quorum.partition.current_voters if voter is not leader]
    groups = ((leader,), "Leader"), (followers, "Follower"), (quorum.partition.observers, "Observer")
    rows: list[tuple[str, ...]] = []
    for replicas, status in groups:
        for replica in replicas:
            times = replica.last_fetch_timestamp, replica.last_caught_up_timestamp
            shown = [_ago(time_ms, now_ms) if is_human else str(time_ms) for time_ms in times]
            lag = leader.log_end_offset - replica.log_end_offset
            numbers = (str(replica.replica_id), id_text(replica.replica_directory_id), str(replica.log_end_offset))
            rows.append((*numbers, str(lag), *shown, status))
    return rows


def leader_of(quorum: Quorum) -> QuorumReplica:
    for voter in quorum.partition.current_voters:
        if voter.replica_id == quorum.partition.leader_id:
            return voter
    raise OptionError("No value present")


def _ago(time_ms: int, now_ms: int) -> str:
    return str(time_ms) if time_ms == UNKNOWN_TIME else f"{max(now_ms - time_ms, 0)} ms ago"
