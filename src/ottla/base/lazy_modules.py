"""Lazy modules: an import returns an empty module, which is loaded at its first use.

asyncio imports ssl, and with it OpenSSL, in every process, although a broker without TLS never uses it. The `import`
statements stay at the top of the files. Use it only for modules whose attributes are not accessed while the importing
module is loaded, and that are not replaced in sys.modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any, Final

# Attributes that the import system reads in every statement that names the module.
INTERNAL_ATTRIBUTES: Final = frozenset(
    {"__cached__", "__class__", "__dict__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)

_lock: Final = RLock()  # a thread that uses a module while another thread loads it waits for the end of the load
_loading: Final[set[str]] = set()


class LazyModule(ModuleType):
    """A module that is not loaded yet."""

    def __getattribute__(self, name: str) -> Any:
        if name not in INTERNAL_ATTRIBUTES:
            _load(self)
        return ModuleType.__getattribute__(self, name)  # not super(): __class__ has changed

    def __setattr__(self, name: str, value: object) -> None:
        if name not in INTERNAL_ATTRIBUTES and not name.startswith("__"):
            _load(self)  # loading after the assignment would overwrite the new value
        ModuleType.__setattr__(self, name, value)


class _LazyLoader:
    """Wraps the module's own loader until the module is used."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module is loaded at its first use."""


class LazyFinder:
    """Finds the same modules as PathFinder, restricted to these names."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec

    def __repr__(self) -> str:
        return f"<LazyFinder {', '.join(sorted(self._names))}>"


def make_lazy(names: frozenset[str]) -> None:
    """Make later imports of these modules lazy. Modules that are loaded already stay as they are."""
    sys.meta_path.insert(0, LazyFinder(names))


def is_loaded(name: str) -> bool:
    """Whether the module has been used, and so loaded."""
    module = sys.modules.get(name)
    return module is not None and type(module) is not LazyModule


def _load(module: ModuleType) -> None:
    with _lock:
        spec = module.__spec__
        if type(module) is not LazyModule or spec is None or spec.name in _loading:
            return  # another thread loaded it first, or the module accesses itself while it is loaded
        late: Any = spec.loader  # a _LateLoader, as long as the class is LazyModule
        _loading.add(spec.name)
        try:
            late.loader.exec_module(module)
        finally:
            _loading.discard(spec.name)
        spec.loader = module.__loader__ = late.loader
        module.__class__ = ModuleType  # type: ignore[assignment]
