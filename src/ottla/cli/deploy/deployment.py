"""The facts of a deployment, independent of its kind, and the readers of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings
from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.terminal import ToolError, UsageError
from ottla.operations.doctor.findings import Severity


class Finding(NamedTuple):
    """One finding: place, cause and remedy."""

    severity: Severity
    place: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"{self.severity.value.upper()} {self.place}: {self.cause}. {self.cure}"


class Published(NamedTuple):
    """A port of a machine and the port that it leads to inside a container; equal without a container."""

    address: str  # "" means every address of the machine
    port: int
    inner: int
    owner: str
    machine: str


class Folder(NamedTuple):
    """A folder of a machine that a server writes to."""

    path: str
    owner: str
    machine: str
    is_created_on_start: bool  # the server's start creates it
    user: int | None = None  # the user id that writes to it, if known


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker; `machine` is its host name, "" for a container of this machine or a pod."""

    name: str
    place: str
    settings: BrokerSettings
    machine: str = ""
    metrics_url: str | None = None  # reachable from this machine
    open_files: int | None = None
    stop_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperFacts:
    """One ZooKeeper server; `addresses` are those that brokers may name."""

    name: str
    place: str
    number: int | None
    properties: Mapping[str, str]
    addresses: frozenset[str]
    machine: str = ""


@dataclass(slots=True)
class Deployment:
    """The whole deployment. Readers add findings and items that cannot be checked."""

    kind: str
    folder: Path
    brokers: list[BrokerFacts] = field(default_factory=list)
    zookeepers: list[ZooKeeperFacts] = field(default_factory=list)
    broker_count: int = 0  # including brokers with unreadable settings
    is_zookeeper_here: bool = False  # these files contain the servers
    published: list[Published] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)
    inner_names: set[str] = field(default_factory=set)  # names that need not resolve on this machine
    images: dict[str, str] = field(default_factory=dict)  # of ottla's services
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def problem(self, place: str, cause: str, cure: str) -> None:
        self.findings.append(Finding(Severity.PROBLEM, place, cause, cure))

    def warning(self, place: str, cause: str, cure: str) -> None:
        self.findings.append(Finding(Severity.WARNING, place, cause, cure))

    def __repr__(self) -> str:
        return f"<Deployment {self.kind} {self.folder}: {self.broker_count} brokers, {len(self.findings)} findings>"


# ---- reading files that users have edited
FILE_BYTES_MAX: Final = 1 << 20
NODES_MAX: Final = 100_000
DEPTH_MAX: Final = 50


def read_text(path: Path) -> str:
    """Read a text file. Raises UsageError if it is unreadable, not text, or too large."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text (UTF-8)") from None


def read_properties_file(path: Path) -> dict[str, str]:
    try:
        return read_properties(read_text(path))
    except PropertiesError as problem:
        raise UsageError(f"{path}:{problem.line}: {problem.cause}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a document that is a mapping. Limits the expansion of anchors."""
    try:
        import yaml  # noqa: PLC0415 (an extra)
    except ImportError:
        raise ToolError("files of YAML need PyYAML: pip install 'ottla[cli]'") from None
    text = read_text(path)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}, 0) > NODES_MAX:
            raise UsageError(f"{path}: its anchors expand to too many values")
        document = loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path}{line}: no YAML: {getattr(problem, 'problem', None) or 'it makes no sense'}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: not a mapping (key: value) but {type(document).__name__}")
    return {str(key): value for key, value in document.items()}


def _size(node: Any, known: dict[int, int], depth: int) -> int:
    """The size of a node with its aliases expanded. Raises ValueError if it contains itself."""
    if id(node) in known:
        size = known[id(node)]
        if size < 0:
            raise ValueError("it contains itself")
        return size
    if depth > DEPTH_MAX:
        raise ValueError("it is nested too deeply")
    known[id(node)] = -1
    size = 1
    if isinstance(node.value, list):
        for item in node.value:
            children = item if isinstance(item, tuple) else (item,)
            size += sum(_size(child, known, depth + 1) for child in children)
    known[id(node)] = size
    return size
