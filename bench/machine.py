"""Facts about the machine and the versions, which every figure depends on."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import confluent_kafka

from bench.kafka_process import java_version, kafka_version
from bench.paths import PROJECT, cache_folder
from bench.procfs import meminfo_mb


def machine_facts(systems: tuple[str, ...]) -> dict[str, str]:
    facts = {
        "Processor": f"{_processor()}, {os.cpu_count()} cores",
        "Memory": f"{meminfo_mb('MemTotal') / 1024:.1f} GiB",
        "File system": _file_system(cache_folder()),
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "ottla": f"{_package('ottla')}{_commit()}, {_compiled()}",
        "Client": f"librdkafka {_librdkafka()} (confluent-kafka {_package('confluent-kafka')}), raw sockets",
    }
    if "kafka" in systems:
        facts["Apache Kafka"] = f"{kafka_version()} on {java_version()}"
    return facts


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    done = subprocess.run(["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()[-1] if done.returncode == 0 else "unknown"


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _librdkafka() -> str:
    return str(confluent_kafka.libversion()[0])


def _commit() -> str:
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""


def _compiled() -> str:
    """The compiled ones among the files that may be compiled."""
    found = sorted(path.name.partition(".")[0] for path in (PROJECT / "src" / "ottla").rglob("*.so"))
    return f"{len(found)} modules compiled" if found else "nothing compiled"
