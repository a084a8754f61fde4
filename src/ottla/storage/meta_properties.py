"""`meta.properties`: the broker and the cluster that a log directory belongs to.

Written as by Kafka 3.9 in ZooKeeper mode (version 0 with `broker.id`). The KRaft format (version 1 with `node.id`) is
also accepted, so a broker can start on a copy of either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.storage import files
from ottla.storage.errors import LogDirError

FILE_NAME = "meta.properties"


def check_meta_properties(directory: str, node_id: int, cluster_id: str | None) -> str | None:
    """Return the stored cluster id; None without meta.properties. Raises LogDirError for another broker or cluster."""
    path = f"{directory}/{FILE_NAME}"
    values = read_meta_properties(path)
    if values is None:
        return None
    stored_node = values.get("broker.id", values.get("node.id", ""))
    if stored_node not in ("", str(node_id)):
        raise LogDirError(
            f"{path} says that this folder belongs to broker {stored_node}, but this is broker {node_id}: "
            f"set broker.id={stored_node} or use another folder in log.dirs"
        )
    stored_cluster = values.get("cluster.id")
    if cluster_id is not None and stored_cluster is not None and stored_cluster != cluster_id:
        raise LogDirError(
            f"{path} says that this folder belongs to cluster {stored_cluster}, but this is cluster {cluster_id}: "
            "use another folder in log.dirs, or the metadata that belongs to it"
        )
    return stored_cluster


def stored_node_id(directories: Sequence[str]) -> int | None:
    """Return the stored broker id; None if no directory has one. Raises LogDirError if the directories disagree."""
    found: dict[str, str] = {}
    for directory in directories:
        values = read_meta_properties(f"{directory}/{FILE_NAME}")
        if values is not None:
            found[directory] = values.get("broker.id", values.get("node.id", ""))
    numbers = set(found.values())
    if len(numbers) > 1:
        said = ", ".join(f"{directory}: {number}" for directory, number in found.items())
        raise LogDirError(f"the folders in log.dirs belong to different brokers ({said}): use those of one broker")
    number = numbers.pop() if numbers else ""
    return int(number) if number.isdigit() else None


def write_meta_properties(directory: str, node_id: int, cluster_id: str, directory_id: str | None = None) -> None:
    """Write the file. With a directory id it has the KRaft format, where each directory has an id."""
    text = f"#\nversion=0\nbroker.id={node_id}\ncluster.id={cluster_id}\n"
    if directory_id is not None:
        text = f"#\nnode.id={node_id}\ndirectory.id={directory_id}\nversion=1\ncluster.id={cluster_id}\n"
    files.replace_file(f"{directory}/{FILE_NAME}", text.encode(), is_durable=True)


def read_meta_properties(path: str) -> dict[str, str] | None:
    """Return the key-value pairs, None without the file. Raises LogDirError for a damaged file or a later version."""
    if not os.path.exists(path):
        return None
    lines = files.read_file(path).decode("utf-8", "replace").splitlines()
    pairs = [line.partition("=") for line in lines if line.strip() and not line.startswith(("#", "!"))]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    is_whole = "cluster.id" in values and ("broker.id" in values or "node.id" in values)
    if values.get("version") not in ("0", "1") or not is_whole:
        raise LogDirError(
            f"{path} is damaged, or has an unknown version ({values.get('version')!r}): "
            "put the right file back, or delete it to claim this folder for this broker"
        )
    return values
