"""One broker of a test's cluster."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, Self

from ottla.testing.broker import OUTPUT, Broker, Settings
from ottla.testing.child import BrokerError
from ottla.testing.security import Security


class Doors(Protocol):
    """The cluster, as its brokers see it."""

    folder: Path

    def open_doors(self, target: int) -> None: ...

    def close_doors(self, target: int) -> None: ...


class ClusterBroker(Broker):
    """One broker of a cluster: start(), stop(), kill(), pause(), resume() and restart() as with any test broker."""

    def __init__(
        self,
        cluster: Doors,
        broker_id: int,
        settings: Settings,
        environment: Mapping[str, str],
        security: Security | None = None,
    ) -> None:
        self.id = broker_id
        self.cluster = cluster
        super().__init__(settings, folder=cluster.folder, environment=environment, security=security)
        self._was_started = True  # it is the cluster that makes topics, and that closes a broker which does not start

    @property
    def is_paused(self) -> bool:
        return self._child.is_paused

    @property
    def output(self) -> Path:
        return self._folder.path / OUTPUT

    def start(self) -> Self:
        self.cluster.open_doors(self.id)
        super().start()
        return self

    def stop(self) -> None:
        super().stop()
        self.cluster.close_doors(self.id)

    def kill(self) -> None:
        super().kill()
        self.cluster.close_doors(self.id)

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        self.cluster.open_doors(self.id)
        self._child.launch(self.settings)

    def wait_until_ready(self) -> Self:
        """After launch()."""
        self._child.wait_until_ready(self.start_seconds_max)
        return self

    def wipe(self) -> None:
        """As a new disk in place of the old one; the broker must be down."""
        if self.is_running:
            raise BrokerError(f"broker {self.id} runs: stop or kill it before its data is wiped")
        for folder in self.log_folders:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def log_folders(self) -> list[Path]:
        return [Path(folder) for folder in self.settings["log.dirs"].split(",")]

    def partition_folder(self, topic: str, partition: int) -> Path | None:
        """Where this broker has the log of a partition."""
        found = (folder / f"{topic}-{partition}" for folder in self.log_folders)
        return next((folder for folder in found if folder.is_dir()), None)

    def __repr__(self) -> str:
        return f"<ClusterBroker {self.id} {self._child}>"
