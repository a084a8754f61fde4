"""ACLs of the nodes in ZooKeeper, as in Kafka 3.9. Pure.

Rules:
1. A secure node can be changed only by its creator, and read by all clients.
2. Nodes with secrets (passwords of users, settings of brokers, tokens) can be read only by their creator.
3. /consumers stays open, because consumers of Kafka before 0.9 write there.
"""

from __future__ import annotations

from typing import Final

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SENSITIVE_ROOTS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN_PATH: Final = "/consumers"
# The roots of a cluster's nodes, which are secured completely; other programs may use the same chroot.
SECURE_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/migration",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended/prefixed",
    "/kafka-acl-extended-changes",
)


def rights_of(path: str, *, is_secure: bool) -> list[ACL]:
    """Return the ACL of the node at a path below the chroot."""
    if not is_secure or path == OPEN_PATH:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *(() if path.startswith(SENSITIVE_ROOTS) else READ_ACL_UNSAFE)]
