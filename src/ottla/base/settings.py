"""How settings are declared and read: a class lists its keys as attributes, an object of it holds the texts.

    class Example(Settings):
        num_partitions = Int(1, at_least=1, note="Partitions of a topic that is created without a number.")

    Example({"num.partitions": "3"}).num_partitions == 3

Rules:
1. The attribute's name is the key's name with "_" for ".". There is no second list of names.
2. A value is parsed at its first use and then kept, so that building an object costs next to nothing.
3. Objects never change. What a file or an administrator changes makes a new object.
4. Every key says what it does (`note`); a key that nothing reads says why (`unused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, overload

from ottla.base.setting_types import (
    PARSERS,
    BadValueError,
    Check,
    ConfigType,
    between,
    format_value,
    invalid_value,
    list_problem,
)

T_co = TypeVar("T_co", covariant=True)


class SettingsError(Exception):
    """Settings that the broker cannot start with: of each one line that names the place, the cause and the cure."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Importance(Enum):
    """How much a person should care about a key."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Mode(Enum):
    """Whether a running broker's value may be changed over the wire."""

    READ_ONLY = "read-only"
    PER_LISTENER = "per-listener"  # for one broker, and only with the name of a listener before it
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Setting(Generic[T_co]):
    """One key: its type, default and checks. As an attribute of a Settings object it is the key's value."""

    kind: ClassVar[ConfigType]

    def __init__(
        self,
        default: object = None,
        *,
        note: str,
        check: Check | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
        importance: Importance = Importance.MEDIUM,
        mode: Mode = Mode.READ_ONLY,
        unused: str | None = None,
        fallback: tuple[tuple[str, int], ...] = (),
        is_internal: bool = False,
    ) -> None:
        self.name = self.attribute = ""
        self.default = default
        self.note = note
        self.check = between(at_least, at_most) if at_least is not None else check
        self.importance = importance
        self.mode = mode
        self.unused = unused
        self.fallback = fallback
        self.is_internal = is_internal

    def __set_name__(self, owner: type[Settings], attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type[Settings]) -> Self: ...
    @overload
    def __get__(self, instance: Settings, owner: type[Settings]) -> T_co: ...
    def __get__(self, instance: Settings | None, owner: type[Settings]) -> Self | T_co:
        if instance is None:
            return self
        value: T_co = self.effective(instance)
        instance.__dict__[self.attribute] = value  # found before this descriptor from now on
        return value

    @property
    def is_sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD

    def effective(self, settings: Settings) -> Any:
        """The value that counts: the key's own text, else that of a coarser key (hours for ms), else the default."""
        for name, factor in ((self.name, 1), *self.fallback):
            text = settings.texts.get(name)
            if text is not None:
                return settings.keys[name].value(text) * factor if factor > 1 else settings.keys[name].value(text)
        if self.default is None and self.fallback:
            name, factor = self.fallback[-1]
            default: Any = settings.keys[name].default
            return default * factor if factor > 1 else default
        return self.default

    def value(self, text: str) -> Any:
        """The text as a value; raises BadValueError with Kafka's whole sentence."""
        try:
            value = PARSERS[self.kind](text)
        except BadValueError as bad:
            raise BadValueError(invalid_value(self.name, text, str(bad))) from None
        problem = self.problem(value)
        if problem is not None:
            raise BadValueError(problem)
        return value

    def problem(self, value: object) -> str | None:
        return self.check(self.name, value) if self.check is not None else None

    def shown(self, text: str | None) -> str | None:
        """The text as DescribeConfigs shows it, parsed and written again; the default for None; never a secret."""
        if self.is_sensitive:
            return None
        return format_value(self.default if text is None else self.value(text))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}={format_value(self.default)}>"


class Boolean(Setting[bool]):
    kind = ConfigType.BOOLEAN


class Int(Setting[int]):
    kind = ConfigType.INT


class OptionalInt(Setting["int | None"]):
    kind = ConfigType.INT


class Short(Setting[int]):
    kind = ConfigType.SHORT


class Long(Setting[int]):
    kind = ConfigType.LONG


class Double(Setting[float]):
    kind = ConfigType.DOUBLE


class Text(Setting[str]):
    kind = ConfigType.STRING


class OptionalText(Setting["str | None"]):
    kind = ConfigType.STRING


class ClassName(Setting["str | None"]):
    """A key that names a Java class for Kafka."""

    kind = ConfigType.CLASS


class Password(Setting["str | None"]):
    """A secret: never shown."""

    kind = ConfigType.PASSWORD


class Items(Setting["tuple[str, ...]"]):
    """A comma-separated list."""

    kind = ConfigType.LIST

    def __init__(self, default: tuple[str, ...] | None = (), *, may_be_empty: bool = True, **details: Any) -> None:
        super().__init__(default, **details)
        self.may_be_empty = may_be_empty

    def effective(self, settings: Settings) -> tuple[str, ...]:
        return super().effective(settings) or ()

    def problem(self, value: Any) -> str | None:
        if not value and not self.may_be_empty:
            return list_problem(self.name, value, self.may_be_empty)
        return super().problem(value) or list_problem(self.name, value, self.may_be_empty)


class Settings:
    """Texts under their keys; a subclass declares the keys."""

    keys: ClassVar[dict[str, Setting[Any]]] = {}
    texts: Mapping[str, str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.keys = {key.name: key for key in _declared_keys(cls)}

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.__dict__["texts"] = texts

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings do not change: make a new {type(self).__name__} instead of setting {name}")


def _declared_keys(cls: type[Settings]) -> Iterator[Setting[Any]]:
    for parent in reversed(cls.__mro__):
        for item in vars(parent).values():
            if isinstance(item, Setting):
                yield item
