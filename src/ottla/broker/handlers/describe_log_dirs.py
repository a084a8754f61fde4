"""DescribeLogDirs (key 35), v1-5: log directories with their partitions and sizes.

v2 flexible; v3 an error of the response; v4 disk usage; v5 cordoned directories.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.topics import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.storage.log_dir import LogDir
from ottla.storage.log_move import FutureLog

UNKNOWN_BYTES: Final = -1

Row = tuple[TopicPartition, DescribeLogDirsPartition]


async def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        turn = TimeSlice()
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in in_slices(request.topics, turn)
            async for index in in_slices(topic.partitions, turn)
        }
    log_dirs = context.broker.replicas.log_dirs
    results = []
    for log_dir in log_dirs.dirs:
        result = await describe(log_dir, wanted, context)
        result.is_cordoned = log_dir.path in log_dirs.cordoned_paths
        if log_dir.offline_reason is None:
            result.total_bytes, result.usable_bytes = await read_disk_usage(context, log_dir.path)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


async def describe(log_dir: LogDir, wanted: set[TopicPartition] | None, context: Context) -> DescribeLogDirsResult:
    if log_dir.offline_reason is not None:
        return DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=log_dir.path)
    names = list(log_dir.logs) if wanted is None else [name for name in wanted if name in log_dir.logs]
    rows: list[Row] = [
        (name, current_row(log_dir, name, context)) async for name in in_slices(names) if name in log_dir.logs
    ]
    moves = context.broker.log_dir_moves.moves_into(log_dir.path)
    rows += [(move.partition, future_row(move)) for move in moves if wanted is None or move.partition in wanted]
    topics: dict[str, DescribeLogDirsTopic] = {}
    async for name, row in in_slices(rows):
        topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic)).partitions.append(row)
    return DescribeLogDirsResult(log_dir=log_dir.path, topics=list(topics.values()))


def current_row(log_dir: LogDir, name: TopicPartition, context: Context) -> DescribeLogDirsPartition:
    log = log_dir.logs[name]
    partition = context.broker.replicas.get(name.topic, name.partition)
    lag = max(partition.high_watermark - log.end_offset, 0) if partition is not None else 0
    return DescribeLogDirsPartition(partition_index=name.partition, partition_size=log.size_bytes, offset_lag=lag)


def future_row(move: FutureLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.partition.partition,
        partition_size=move.copied_bytes,
        offset_lag=move.lag,
        is_future_key=True,
    )


async def read_disk_usage(context: Context, path: str) -> tuple[int, int]:
    """Return size and free space of the file system. Called by a worker thread, because a disk may be slow."""
    try:
        found = await asyncio.get_running_loop().run_in_executor(context.broker.workers, os.statvfs, path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
