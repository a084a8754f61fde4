"""pytest fixtures: `ottla_broker` and related ones.

    @pytest.mark.ottla(settings={"message.max.bytes": 2000}, topics={"orders": 3})
    def test_large_orders_are_refused(ottla_broker): ...

* `ottla_broker` has the scope that `--ottla-scope` or the ini option `ottla_scope` names; `function` by default.
* `ottla_broker_module` and `ottla_broker_session` have the scope in their names.
* `ottla_kdc` is a Kerberos realm with its KDC; the test, its brokers and its programs use it (KRB5_CONFIG).
* `ottla_broker_factory` creates any number of brokers: `ottla_broker_factory({"num.partitions": 3})`.
* The mark `ottla` applies in the scope of the fixture: on a test, or on a module (`pytestmark`). A mark on a test with
  a shared broker would have no effect, so it is an error.
* The ini option `ottla_settings` has settings of all brokers, one `key=value` a line.
* The report of a failed test shows its brokers' output during the test.
* A file `orders.test.yaml` beside a pipeline `orders.yaml` or `orders.py` is collected: each of its cases is a test.

Every pytest run in the environment loads this file, so it imports nothing heavy until a fixture is used. Each worker of
pytest-xdist has its own brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker, Quotas, Settings, Topics
    from ottla.testing.kdc import Kdc

SCOPES = ("function", "class", "module", "package", "session")
SHARED_FIXTURES = frozenset({"ottla_broker", "ottla_broker_module", "ottla_broker_session"})
LINES_SHOWN_MAX = 200
CASES = (".test.yaml", ".test.yml")  # of trials/cases.py, whose import needs more modules

# The running brokers, and where the output of the current test begins in each.
_RUNNING: dict[Broker, int] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla")
    group.addoption("--ottla-scope", choices=SCOPES, default=None, help="scope of the fixture ottla_broker")
    parser.addini("ottla_scope", "scope of the fixture ottla_broker (function, class, module, package, session)")
    parser.addini("ottla_settings", "settings of all test brokers, one key=value a line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ottla(settings={...}, topics={...}, quotas=[...]): how the broker of the fixture ottla_broker is started",
    )
    scope = broker_scope("ottla_broker", config)
    if scope not in SCOPES:
        raise pytest.UsageError(f"ottla_scope = {scope}: it must be one of {', '.join(SCOPES)}")


def broker_scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 (pytest passes both by name)
    return config.getoption("--ottla-scope") or config.getini("ottla_scope") or SCOPES[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A mark without effect is an error."""
    scope = broker_scope("ottla_broker", config)
    for item in items:
        used = SHARED_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if scope == "function":
            used -= {"ottla_broker"}
        if used and any(mark.name == "ottla" for mark in item.own_markers):
            raise pytest.UsageError(
                f"{item.nodeid}: the mark `ottla` on a test has no effect on {', '.join(sorted(used))}, which other "
                "tests share: put it on the module (pytestmark), or give the test a broker of its own"
            )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not file_path.name.endswith(CASES) or any(find_spec(name) is None for name in ("yaml", "pyspark")):
        return None
    from ottla.testing.pipeline_cases import collect  # noqa: PLC0415 (only where there is such a file)

    return collect(file_path, parent)


# ---- fixtures


@pytest.fixture(scope=broker_scope)
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker; `ottla_broker.bootstrap_servers` is its address."""
    yield from _marked_broker(request)


@pytest.fixture(scope="module")
def ottla_broker_module(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker that the tests of a module share."""
    yield from _marked_broker(request)


@pytest.fixture(scope="session")
def ottla_broker_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker that all tests share."""
    yield from _marked_broker(request)


@pytest.fixture
def ottla_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Creates running brokers: `ottla_broker_factory(settings, topics=...)`; all are removed after the test."""
    made: list[Broker] = []

    def make(settings: Settings | None = None, *, topics: Topics = (), quotas: Quotas = ()) -> Broker:
        made.append(_start(request.config, settings or {}, topics, quotas))
        return made[-1]

    yield make
    for broker in made:
        _end(broker)


@pytest.fixture
def ottla_kdc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    """A Kerberos realm: `ottla_kdc.keytab("alice")` creates a principal and its keytab."""
    from ottla.testing.kdc import Kdc  # noqa: PLC0415 (only tests with Kerberos need it)

    with Kdc() as kdc:
        for name, value in kdc.environment.items():
            monkeypatch.setenv(name, value)
        yield kdc


def _marked_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    settings: dict[str, Any] = {}
    topics: Topics = ()
    quotas: Quotas = ()
    for mark in reversed(list(request.node.iter_markers("ottla"))):  # the nearest mark comes last and wins
        settings |= mark.kwargs.get("settings", {})
        topics = mark.kwargs.get("topics", topics)
        quotas = mark.kwargs.get("quotas", quotas)
        unknown = sorted(mark.kwargs.keys() - {"settings", "topics", "quotas"})
        if unknown or mark.args:
            raise pytest.UsageError(
                f"the mark `ottla` takes settings={{...}}, topics={{...}} and quotas=[...], not {unknown or mark.args}"
            )
    broker = _start(request.config, settings, topics, quotas)
    yield broker
    _end(broker)


def _start(config: pytest.Config, settings: Settings, topics: Topics, quotas: Quotas) -> Broker:
    from ottla.testing.broker import Broker  # noqa: PLC0415 (only tests that use a broker pay for it)

    broker = Broker(common_settings(config) | dict(settings), topics=topics, quotas=quotas)
    _RUNNING[broker] = 0
    try:
        return broker.start()
    except BaseException:
        _end(broker)
        raise


def common_settings(config: pytest.Config) -> dict[str, Any]:
    """The settings of all brokers, from the ini file."""
    pairs = [line.partition("=") for line in config.getini("ottla_settings")]
    for key, is_pair, _ in pairs:
        if not is_pair:
            raise pytest.UsageError(f"ottla_settings: {key!r} is not of the form key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _end(broker: Broker) -> None:
    _RUNNING.pop(broker, None)
    broker.close()


# ---- output of the brokers during a failed test


def pytest_runtest_setup(item: pytest.Item) -> None:  # noqa: ARG001 (the hook's own name)
    for broker in _RUNNING:
        _RUNNING[broker] = broker.log_position()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        used = [value for name, value in getattr(item, "funcargs", {}).items() if name.startswith("ottla_broker")]
        for broker, position in _RUNNING.items():
            if broker in used or "ottla_broker_factory" in getattr(item, "fixturenames", ()):
                lines = broker.logs_since(position).splitlines()[-LINES_SHOWN_MAX:]
                report.sections.append((f"ottla broker {broker.bootstrap_servers}", "\n".join(lines)))
    return report
