"""Modules that are loaded when somebody uses them, and not when somebody imports them.

asyncio imports ssl, and with it OpenSSL, in every process; a broker without TLS never asks it for anything. `import`
stands at the top of a file as ever; what it gets is an empty module that loads itself at the first look inside. Only
for modules that nobody looks into while he is imported himself, and that nobody replaces by another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any, Final

# What `import` itself looks at, in every statement that names the module.
UNSEEN: Final = frozenset(
    {"__cached__", "__class__", "__dict__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)

_lock: Final = RLock()  # whoever comes while another thread loads a module waits until it is whole
_loading: Final[set[str]] = set()


class LateModule(ModuleType):
    """Not loaded yet."""

    def __getattribute__(self, name: str) -> Any:
        if name not in UNSEEN:
            _load(self)
        return ModuleType.__getattribute__(self, name)  # not super(): by now the class is another

    def __setattr__(self, name: str, value: object) -> None:
        if name not in UNSEEN and not name.startswith("__"):
            _load(self)  # what it sets itself would win otherwise
        ModuleType.__setattr__(self, name, value)


class _LateLoader:
    """The module's own loader, which waits for its turn."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""


class LateFinder:
    """Finds what everybody else would find, for these names only."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)  # type: ignore[assignment]
        return spec

    def __repr__(self) -> str:
        return f"<LateFinder {', '.join(sorted(self._names))}>"


def load_late(names: frozenset[str]) -> None:
    """From now on an import of one of these loads nothing. Those that are loaded already stay as they are."""
    sys.meta_path.insert(0, LateFinder(names))


def is_loaded(name: str) -> bool:
    """Whether anybody has used this module yet."""
    module = sys.modules.get(name)
    return module is not None and type(module) is not LateModule


def _load(module: ModuleType) -> None:
    with _lock:
        spec = module.__spec__
        if type(module) is not LateModule or spec is None or spec.name in _loading:
            return  # another thread was faster, or the module looks into itself while it is loaded
        late: Any = spec.loader  # a _LateLoader, as long as the class is this one
        _loading.add(spec.name)
        try:
            late.loader.exec_module(module)
        finally:
            _loading.discard(spec.name)
        spec.loader = module.__loader__ = late.loader
        module.__class__ = ModuleType  # type: ignore[assignment]
