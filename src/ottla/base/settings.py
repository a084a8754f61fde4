"""Declaration and reading of settings: a class declares its keys as attributes, an instance holds the texts.

    class Example(Settings):
        num_partitions = Int(1, at_least=1, note="Partitions of a topic that is created without a number.")

    Example({"num.partitions": "3"}).num_partitions == 3

Rules:
1. The attribute's name is the key's name with "_" for ".". There is no second list of names.
2. A value is parsed at its first use and then cached, so that creating an instance is cheap.
3. Instances are immutable. A changed file or an administrator's change creates a new instance.
4. Every key describes itself (`note`); a key that has no effect gives the reason (`unused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, overload

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
    """Settings that the broker cannot start with: one line for each, with the place, the cause and the cure."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Mode(Enum):
    """Whether a key can be changed at run time."""

    READ_ONLY = "read-only"
    PER_LISTENER = "per-listener"  # for one broker, and only with a listener prefix
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


CLUSTER_WIDE: Final = Mode.CLUSTER_WIDE
PER_BROKER: Final = Mode.PER_BROKER
PER_LISTENER: Final = Mode.PER_LISTENER


class Setting(Generic[T_co]):
    """One key: its type, default and checks. On an instance of Settings the attribute is the key's value."""

    kind: ClassVar[ConfigType]

    def __init__(
        self,
        default: object = None,
        *,
        note: str,
        check: Check | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
        mode: Mode = Mode.READ_ONLY,
        unused: str | None = None,
        fallback: tuple[tuple[str, int], ...] = (),
        is_internal: bool = False,
    ) -> None:
        self.name = self.attribute = ""
        self.default = default
        self.note = note
        self.check = between(at_least, at_most) if at_least is not None else check
        self.mode = mode
        self.unused_reason = unused
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
        instance.__dict__[self.attribute] = value  # later reads find the cached value before this descriptor
        return value

    @property
    def is_sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD

    def effective(self, settings: Settings) -> Any:
        """The effective value: the key's own text, else that of a coarser key (hours for ms), else the default."""
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
        """The text as a value; raises BadValueError with Kafka's message."""
        try:
            value = PARSERS[self.kind](text)
        except BadValueError as bad:
            raise BadValueError(invalid_value(self.name, text, str(bad))) from None
        problem = self.validation_error(value)
        if problem is not None:
            raise BadValueError(problem)
        return value

    def validation_error(self, value: object) -> str | None:
        return self.check(self.name, value) if self.check is not None else None

    def display_value(self, text: str | None) -> str | None:
        """The text as DescribeConfigs shows it, in canonical form; the default for None; never a secret."""
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
    """A key whose value is a Java class in Kafka."""

    kind = ConfigType.CLASS


class Password(Setting["str | None"]):
    """A secret, which is never shown."""

    kind = ConfigType.PASSWORD


class Items(Setting["tuple[str, ...]"]):
    """A comma-separated list."""

    kind = ConfigType.LIST

    def __init__(self, default: tuple[str, ...] | None = (), *, may_be_empty: bool = True, **details: Any) -> None:
        super().__init__(default, **details)
        self.may_be_empty = may_be_empty

    def effective(self, settings: Settings) -> tuple[str, ...]:
        return super().effective(settings) or ()

    def validation_error(self, value: Any) -> str | None:
        if not value and not self.may_be_empty:
            return list_problem(self.name, value, self.may_be_empty)
        return super().validation_error(value) or list_problem(self.name, value, self.may_be_empty)


class Settings:
    """Texts by key; a subclass declares the keys."""

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
