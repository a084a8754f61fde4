"""Beans about the process, under the names that the Java platform uses: dashboards look there."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Iterator
from typing import Final

from ottla.metrics import process
from ottla.metrics.beans import Bean, ObjectName, Source, Value

JAVA: Final = "java.lang"


class ProcessBeans:
    """CPU, memory, files, threads, garbage collection."""

    def __init__(self, collector: process.CollectorTimes) -> None:
        self._collector = collector

    @property
    def sources(self) -> list[Source]:
        return [
            Source(JAVA, "GarbageCollector", self._garbage_collectors),
            Source(JAVA, "Memory", self._memory),
            Source(JAVA, "OperatingSystem", self._operating_system),
            Source(JAVA, "Runtime", self._runtime),
            Source(JAVA, "Threading", self._threading),
        ]

    def _garbage_collectors(self) -> Iterator[Bean | None]:
        for generation, numbers in enumerate(gc.get_stats()):
            name = f"Generation {generation}"
            attributes: dict[str, Value] = {
                "CollectionCount": numbers["collections"],
                "CollectionTime": int(self._collector.seconds[generation] * 1000),
                "Name": name,
                "Valid": True,
            }
            yield Bean(ObjectName(JAVA, (("type", "GarbageCollector"), ("name", name))), attributes)

    def _memory(self) -> Iterator[Bean | None]:
        """There is no heap with a size of its own: it is the resident memory of the process."""
        used, total = process.resident_bytes(), process.memory_bytes()[0]
        yield self._bean("Memory", {"HeapMemoryUsage": {"init": 0, "used": used, "committed": used, "max": total}})

    def _operating_system(self) -> Iterator[Bean | None]:
        total, free = process.memory_bytes()
        attributes: dict[str, Value] = {
            "Name": platform.system(),
            "Version": platform.release(),
            "Arch": platform.machine(),
            "AvailableProcessors": os.cpu_count() or 1,
            "SystemLoadAverage": os.getloadavg()[0],
            "ProcessCpuTime": int(process.cpu_seconds() * 1e9),
            "CommittedVirtualMemorySize": process.virtual_bytes(),
            "TotalMemorySize": total,
            "FreeMemorySize": free,
            "TotalPhysicalMemorySize": total,
            "FreePhysicalMemorySize": free,
            "OpenFileDescriptorCount": process.open_files(),
            "MaxFileDescriptorCount": process.open_files_max(),
        }
        yield self._bean("OperatingSystem", attributes)

    def _runtime(self) -> Iterator[Bean | None]:
        started_s = process.started_s()
        attributes: dict[str, Value] = {
            **process.runtime_names(),
            "Pid": os.getpid(),
            "StartTime": int(started_s * 1000),
            "Uptime": int((time.time() - started_s) * 1000),
        }
        yield self._bean("Runtime", attributes)

    def _threading(self) -> Iterator[Bean | None]:
        yield self._bean("Threading", {"ThreadCount": process.thread_count()})

    def _bean(self, type_: str, attributes: dict[str, Value]) -> Bean:
        return Bean(ObjectName(JAVA, (("type", type_),)), attributes)
