"""Brokers for tests: real processes, started from a properties file as a user would start them.

`bootstrap` is one broker for the whole session; `broker_factory` gives a test a broker with its own settings.
With OTTLA_TEST_BOOTSTRAP=HOST:PORT the session uses that broker instead (this is how every expectation is proven on
Apache Kafka), and the tests that need their own process (marker `needs_ottla`) are skipped.
"""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

READY_LINE = re.compile(r"^ottla broker -?\d+ ready on \S+:\d+", re.MULTILINE)
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
DESCRIPTORS = 20_000
FOREIGN_BOOTSTRAP = os.environ.get("OTTLA_TEST_BOOTSTRAP", "")
TESTS = Path(__file__).parent

# The slowest files start first (Makefile: --no-loadscope-reorder): one of them at the end would keep one process busy
# while the others are idle. `pytest --durations=40` lists them.
LONGEST = (
    "simulation/brokers/test_brokers", "simulation/brokers/test_more_brokers", "simulation/cluster/test_cluster",
    "unit/broker/test_offload", "simulation/test_simulation",
    "cluster/test_faults", "cluster/test_versions", "cluster/test_rolling", "cluster/test_balance",
    "cluster/test_healing", "cluster/test_deploy", "cluster/test_cuts", "cluster/test_coordinators",
    "cluster/test_replication",
    "cluster/test_walkthrough", "cluster/test_topics", "cluster/test_damaged_nodes", "cluster/test_cluster_migration",
    "conformance/test_falling_behind", "conformance/test_monitor",
    "conformance/test_long_requests", "faults/test_transaction_steps", "conformance/test_tls",
    "conformance/test_access_rights", "conformance/test_recipes", "conformance/test_sasl", "faults/test_exactly_once",
    "conformance/test_java", "conformance/test_internal_records", "conformance/test_monitoring",
    "browser/test_console_people", "browser/test_accessibility", "browser/test_console",
    "pipelines/test_pipeline_command", "pipelines/test_keyed_steps", "pipelines/test_session",
    "pipelines/test_wrong_checkpoint", "pipelines/test_examples", "pipelines/test_sql_command", "pipelines/test_enrich",
    "pipelines/test_standalone", "pipelines/test_connect", "pipelines/test_trials", "pipelines/test_change_streams",
    "pipelines/test_sql_cures", "pipelines/test_batch_is_stream", "pipelines/test_windows", "pipelines/test_lost_data",
    "pipelines/test_stateless_steps", "pipelines/test_bad_input", "pipelines/test_random_pipelines",
    "pipelines/test_sinks", "pipelines/test_sink_tables",
)  # fmt: skip

# No deadline for an example: the machine may be busy.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a test needed its second try: pytest itself prints only that it passed."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.line("\n".join(report.longreprtext.splitlines()[-60:]))


class Broker:
    """One `ottla broker` process with its own folder; the port and the data outlive a restart."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_directory),
            **settings,
        }
        self._log_path = directory / "broker.log"
        self._log_position = 0  # where the output of the present process begins
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self.is_running else "stopped"
        return f"<Broker {self.bootstrap} {state} in {self.directory}>"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_text(self) -> str:
        """Everything that all processes of this broker have written to standard output and error."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self, seconds_max: float = START_SECONDS_MAX) -> "Broker":
        self.launch()
        deadline = time.monotonic() + seconds_max
        while not READY_LINE.search(self.log_text[self._log_position :]):
            assert self.is_running, f"broker ended with {self._process and self._process.poll()}:\n{self.log_text}"
            assert time.monotonic() < deadline, f"not ready after {seconds_max} s:\n{self.log_text}"
            time.sleep(0.01)
        return self

    def launch(self) -> None:
        """Start the process without waiting for its ready line (for starts that are meant to fail)."""
        assert not self.is_running
        self._log_position = len(self.log_text)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*ottla_command(), "broker", "--config", str(config)], stdout=log, stderr=log, env=environment
            )

    def wait(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(seconds_max)

    def stop(self) -> None:
        """Controlled shutdown; must end with code 0 and without a traceback in the log."""
        assert self._process is not None
        assert self.is_running, f"broker had already ended with {self._process.poll()}:\n{self.log_text[-4000:]}"
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_SECONDS_MAX)
        assert code == 0, f"exit code {code}:\n{self.log_text[-4000:]}"
        self.assert_no_traceback()

    def kill9(self) -> None:
        """End the process as a power cut would (the page cache survives)."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)

    def restart(self) -> "Broker":
        if self.is_running:
            self.stop()
        return self.start()

    def discard(self) -> None:
        """Clean up after a test, in any state of the process."""
        if self.is_running:
            self.kill9()

    def assert_no_traceback(self) -> None:
        text = self.log_text
        position = text.find("Traceback (most recent call last)")
        assert position < 0, f"traceback in the broker's log:\n{text[max(0, position - 500) : position + 4000]}"


BrokerFactory = Callable[..., Broker]


def pytest_configure(config: pytest.Config) -> None:
    # A background job of a shell ignores Ctrl-C, and so would every tool that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Logs that a test leaves as after a crash stay open: the usual limit of 1,024 descriptors would be too low.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS if hard < 0 else min(hard, DESCRIPTORS), hard))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other languages unless asked for; skip what cannot run against a foreign broker."""
    if "other_languages" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("other_languages")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    for item in items:
        needs_ottla = item.get_closest_marker("needs_ottla") or "broker_factory" in getattr(item, "fixturenames", ())
        if FOREIGN_BOOTSTRAP and needs_ottla:
            item.add_marker(pytest.mark.skip(reason="needs_ottla: OTTLA_TEST_BOOTSTRAP names a foreign broker"))
    items.sort(key=lambda item: place_in_line(item.path))


def place_in_line(path: Path) -> int:
    name = str(path.relative_to(TESTS).with_suffix("")) if path.is_relative_to(TESTS) else ""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    """The broker of the session; None when a foreign broker is used."""
    if FOREIGN_BOOTSTRAP:
        yield None
        return
    # As in the server.properties that comes with Apache Kafka: a new group does not wait for more members.
    shared = Broker(tmp_path_factory.mktemp("broker"), {"group.initial.rebalance.delay.ms": "0"})
    try:
        yield shared.start()
        shared.stop()
    finally:
        shared.discard()


@pytest.fixture(scope="session")
def bootstrap(broker: Broker | None) -> str:
    return broker.bootstrap if broker else FOREIGN_BOOTSTRAP


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Makes started brokers: `broker_factory(message_max_bytes=1000)` sets `message.max.bytes`.

    Brokers that still run at the end are stopped, with the same checks as the broker of the session.
    """
    made: list[Broker] = []

    def make(*, start: bool = True, **settings: object) -> Broker:
        written = {key.replace("_", "."): str(value) for key, value in settings.items()}
        made.append(Broker(tmp_path / f"broker-{len(made)}", written))
        return made[-1].start() if start else made[-1]

    try:
        yield make
        for each in made:
            if each.is_running:
                each.stop()
    finally:
        for each in made:
            each.discard()


def ottla_command() -> list[str]:
    script = Path(sys.executable).with_name("ottla")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ottla.cli.main"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
