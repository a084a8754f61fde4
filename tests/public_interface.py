"""Lists every name that users, tools and files on disk rely on, one a line.

`python -m tests.public_interface` rewrites the list. A changed line is a change of the public interface: it needs a
line in CHANGELOG.md. Internal names do not occur here.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ottla.base.broker_settings import BrokerSettings
from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys
from ottla.base.settings import Settings
from ottla.base.topic_keys import TopicKeys
from ottla.cli import terminal
from ottla.cli.arguments import Parser
from ottla.cli.java.options import KafkaOptions
from ottla.cli.kafka_scripts import SCRIPTS
from ottla.cli.main import COMMANDS
from ottla.console.api.routes import ROUTES as CONSOLE_ROUTES
from ottla.pipelines.model.pipeline import PipelineFields, TopicSource
from ottla.pipelines.model.sink_specs import SINKS
from ottla.pipelines.steps.step_table import STEPS
from ottla.registry.http.routes import ROUTES as REGISTRY_ROUTES

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "tests" / "data" / "public_interface.txt"
SOURCE = ROOT / "src" / "ottla"
# Literals of the source that reach the outside as they are.
METRIC = re.compile(r"ottla_[a-z0-9_]*[a-z0-9]")
BEAN = re.compile(r"kafka\.[a-z.]+:type=\S+")
LOGGER = re.compile(r"getLogger\((.*)\)")
# Scripts that pass their arguments to another program unchanged.
WITHOUT_OPTIONS = ("run-class", "server-start", "server-stop", "zookeeper-shell")
MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_interface() -> list[str]:
    """All lines, sorted by section as below and by name within it."""
    sections: tuple[Callable[[], Iterator[str]], ...] = (
        commands,
        scripts,
        exit_codes,
        settings,
        pipeline_fields,
        python_api,
        routes,
        metrics,
    )
    return [line for section in sections for line in sorted(set(section()))]


class _ShownError(Exception):
    """Carries the options of a tool out of the tool, before it acts on them."""

    def __init__(self, shown: Any) -> None:
        super().__init__()
        self.shown = shown


def commands() -> Iterator[str]:
    for name in COMMANDS:
        yield f"command ottla {name}"
        yield from _options(f"ottla {name}", _shown(lambda name=name: import_module(COMMANDS[name].module).run([])))


def scripts() -> Iterator[str]:
    for name, place in SCRIPTS.items():
        module, _, function = place.partition(":")
        yield f"script {name}"
        if any(part in name for part in WITHOUT_OPTIONS):
            continue
        run = getattr(import_module(module), function or "run")
        yield from _options(name, _shown(lambda run=run: run(["--bootstrap-server", "localhost:1"])))


def _shown(run: Callable[[], object]) -> Any:
    """The parser or table of options that a tool is about to use; None for a tool without one."""

    def show(self: Any, *arguments: Any, **_: Any) -> Any:
        raise _ShownError(self if isinstance(self, argparse.ArgumentParser) else arguments[2])

    kept = KafkaOptions.__init__
    KafkaOptions.__init__ = show  # type: ignore[method-assign]
    Parser.on_parse = show
    try:
        run()
    except _ShownError as caught:
        return caught.shown
    finally:
        KafkaOptions.__init__ = kept  # type: ignore[method-assign]
        Parser.on_parse = None
    raise AssertionError("the tool used no parser")


def _options(tool: str, shown: Any) -> Iterator[str]:
    if not isinstance(shown, argparse.ArgumentParser):
        for option in shown:
            value = f" <{option.value}>" if option.value else ""
            alone = "" if option.bare_value is None else f" alone={option.bare_value!r}"
            yield f"option {tool} --{option.name}{value}{' many' if option.is_repeatable else ''}{alone}"
        return
    for action in shown._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                yield f"command {tool} {name}"
                yield from _options(f"{tool} {name}", parser)
        else:
            yield f"option {tool} {_option(action)}"


def _option(action: argparse.Action) -> str:
    words = [", ".join(action.option_strings) or action.dest]
    if action.nargs is not None:
        words.append(f"nargs={action.nargs}")
    if action.metavar is not None:
        words.append(f"metavar={action.metavar}")
    if action.choices is not None:
        words.append(f"choices={','.join(map(str, action.choices))}")
    if action.default not in (None, argparse.SUPPRESS):
        words.append(f"default={_plain(action.default)}")
    return " ".join([*words, *(["required"] if action.required and action.option_strings else [])])


def exit_codes() -> Iterator[str]:
    for name, code in vars(terminal).items():
        if name.startswith("EXIT_"):
            yield f"exit code {code}"


def settings() -> Iterator[str]:
    families: dict[str, type[Settings]] = {
        "broker": BrokerSettings,
        "topic": TopicKeys,
        "group": GroupResourceKeys,
        "client-metrics": ClientMetricsKeys,
    }
    for family, declared in families.items():
        for key in declared.keys.values():
            yield f"setting {family} {key.name} {key.kind.name.lower()} {_plain(key.default)} {key.mode.value}"


def pipeline_fields() -> Iterator[str]:
    kinds: dict[str, Any] = {"head": PipelineFields, "from": TopicSource}
    kinds |= {f"step {name}": step for name, step in STEPS.items()}
    kinds |= {f"sink {name}": sink for name, sink in SINKS.items()}
    for kind, declared in kinds.items():
        for each in fields(declared):
            yield f"pipeline {kind} {each.name}: {each.type}{_default(each)}"


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f" = {_plain(field.default)}"
    return "" if field.default_factory is MISSING else " = ..."


def python_api() -> Iterator[str]:
    for name in ("ottla.pipelines", "ottla.testing"):
        module = import_module(name)
        for public in module.__all__:
            yield from _signatures(f"{name}.{public}", getattr(module, public))
    plugin = import_module("ottla.testing.pytest_plugin")
    yield from (f"fixture {name}" for name in _fixtures(plugin))


def _signatures(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"python {name}{_signature(value)}"
        return
    yield f"python {name}{_signature(value) if not issubclass(value, BaseException) else ''}"
    for member, attribute in inspect.getmembers(value):
        if not member.startswith("_") and member not in dir(BaseException):
            is_method = inspect.isfunction(attribute) or inspect.ismethod(attribute)
            yield f"python {name}.{member}{_signature(attribute) if is_method else ''}"


def _signature(value: Any) -> str:
    return MEMORY_ADDRESS.sub("", str(inspect.signature(value)))


def _fixtures(plugin: ModuleType) -> Iterator[str]:
    tree = ast.parse(Path(str(plugin.__file__)).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(each) for each in node.decorator_list):
            yield f"{node.name}({', '.join(each.arg for each in node.args.args)})"


def routes() -> Iterator[str]:
    for route in CONSOLE_ROUTES:
        yield f"route console {route.method} {route.path}"
    for path in REGISTRY_ROUTES:
        yield f"route registry {path.method} {path.path}"


def metrics() -> Iterator[str]:
    """Names of metrics and MBeans, as written in the source."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if METRIC.fullmatch(node.value):
                    yield f"name {node.value}"
                elif BEAN.match(node.value):
                    yield f"bean {node.value}"


def _plain(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    text = MEMORY_ADDRESS.sub("", repr(value))
    return text.replace(str(Path.home()), "~").replace(str(ROOT), ".")


def main() -> int:
    COMMITTED.write_text("".join(f"{line}\n" for line in public_interface()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
