"""What the files of a deployment say, whichever kind they are: the facts that are checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ottla.base.broker_settings import BrokerSettings
from ottla.operations.doctor.findings import Severity


class Finding(NamedTuple):
    """One thing that was found: where, why it will not work or may not, and what helps."""

    severity: Severity
    place: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"{self.severity.value.upper()} {self.place}: {self.cause}. {self.cure}"


class Published(NamedTuple):
    """A port of a machine, and where it leads inside of a container; both are the same without one."""

    address: str  # "" is every address of the machine
    port: int
    inner: int
    owner: str
    machine: str


class Folder(NamedTuple):
    """A folder of a machine that a server writes to."""

    path: str
    owner: str
    machine: str
    is_made: bool  # by whoever starts the server, if it is not there
    user: int | None = None  # the number of the user who writes to it, if that is known


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker; `machine` is the name of its host, "" for a container of this machine or a pod."""

    name: str
    place: str
    settings: BrokerSettings
    machine: str = ""
    metrics_url: str | None = None  # where it can be asked from this machine
    open_files: int | None = None
    stop_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperFacts:
    """One ZooKeeper; addresses are those that brokers may name."""

    name: str
    place: str
    number: int | None
    properties: Mapping[str, str]
    addresses: frozenset[str]
    machine: str = ""


@dataclass(slots=True)
class Deployment:
    """All of it. Readers add what they find wrong while they read, and what they cannot know."""

    kind: str
    folder: Path
    brokers: list[BrokerFacts] = field(default_factory=list)
    zookeepers: list[ZooKeeperFacts] = field(default_factory=list)
    broker_count: int = 0  # also those whose settings cannot be read
    is_zookeeper_here: bool = False  # its servers are in these files
    published: list[Published] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)
    inner_names: set[str] = field(default_factory=set)  # that need not resolve here
    images: dict[str, str] = field(default_factory=dict)  # of our own services
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def problem(self, place: str, cause: str, cure: str) -> None:
        self.findings.append(Finding(Severity.PROBLEM, place, cause, cure))

    def warning(self, place: str, cause: str, cure: str) -> None:
        self.findings.append(Finding(Severity.WARNING, place, cause, cure))

    def __repr__(self) -> str:
        return f"<Deployment {self.kind} {self.folder}: {self.broker_count} brokers, {len(self.findings)} findings>"
