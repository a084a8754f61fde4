"""Decodes what was written with schemas of a registry; each schema is asked for once.

Rules:
1. What was found is kept, what is missing is not asked for again for a while, and a registry that does not answer is
   left alone for a while, so that a search over millions of messages does not wait for it millions of times.
2. Whatever goes wrong is a SchemaError.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.decoders import Decode, make_decoder
from ottla.operations.schema_registry.errors import SchemaError, UnreachableError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.schemas import Schema

SCHEMAS_MAX = 1000
REST_S = 10.0  # how long a registry that failed is left alone
MISSING_S = 30.0  # how long a schema that is not there is not asked for again


class Registry:
    """Used by several threads at once."""

    def __init__(
        self,
        address: RegistryAddress,
        make_decoder: Callable[[Schema], Decode] = make_decoder,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = RegistryClient(address, monotonic)
        self._make_decoder = make_decoder
        self._monotonic = monotonic
        self._known: OrderedDict[SchemaName, tuple[str, Decode]] = OrderedDict()
        self._missing: dict[SchemaName, tuple[float, str]] = {}  # until when, and why
        self._resting: tuple[float, str] = (float("-inf"), "")
        self._lock = threading.Lock()

    def decode(self, name: SchemaName, data: bytes) -> tuple[str, Any]:
        """What bytes that were written with a schema say. Raises SchemaError."""
        kind, decode = self._decoder(name)
        try:
            return kind, decode(data)
        except SchemaError:
            raise
        except Exception as problem:  # noqa: BLE001 (what a decoder raises for strange bytes is anything)
            words = f"{type(problem).__name__}: {problem}"[:200]
            raise SchemaError(f"the bytes do not fit schema {name}: {words}") from None

    def _decoder(self, name: SchemaName) -> tuple[str, Decode]:
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                self._known.move_to_end(name)
                return found
            now = self._monotonic()
            for until, why in (self._missing.get(name, (now, "")), self._resting):
                if now < until:
                    raise SchemaError(why)
            try:
                schema = self.client.schema(name)
                found = (schema.kind, self._make_decoder(schema))
            except UnreachableError as problem:
                self._resting = (now + REST_S, str(problem))
                raise
            except SchemaError as problem:
                if len(self._missing) >= SCHEMAS_MAX:
                    self._missing.clear()
                self._missing[name] = (now + MISSING_S, str(problem))
                raise
            self._known[name] = found
            if len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
            return found

    def __repr__(self) -> str:
        return f"<Registry {self.client.address.url} schemas={len(self._known)}>"
