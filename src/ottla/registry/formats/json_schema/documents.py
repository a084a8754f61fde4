"""Where a `$ref` leads: inside the schema, or to one of its references. Nothing else is ever reached.

A name is looked up as it is written, and as an address that begins at the nearest `$id` around it. The addresses of
JSON Schema's own drafts are known, and say nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ottla.registry.formats.parsed import Budget, InvalidSchemaError, read_json

DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
DATA = frozenset(("enum", "const", "default", "examples"))  # what stands in there is no schema


def draft_of(value: Any) -> int:
    """Draft 7 unless it says another, as Confluent takes it."""
    given = value.get("$schema") if isinstance(value, dict) else None
    if not isinstance(given, str):
        return 7
    return DRAFTS.get(given.rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-"), 7)


class Documents:
    """The schema and everything that it may refer to."""

    def __init__(self, root: Any, references: Mapping[str, str], budget: Budget) -> None:
        self.budget = budget
        self.resources: dict[str, Any] = {}
        self.anchors: dict[tuple[str, str], Any] = {}
        self.bases: dict[int, str] = {}  # of each object, by its identity; the documents live as long as this does
        self.drafts: dict[str, int] = {}
        self.documents = [root]
        self.add("", root)
        base = self.bases.get(id(root), "")
        for name, text in references.items():
            value = read_json(text, exact=True)
            self.documents.append(value)
            self.add(joined(base, name), value)
            for other in (name, "./" + name):
                self.resources.setdefault(other, value)

    def add(self, address: str, document: Any) -> None:
        """Notes all addresses in a document, without recursion."""
        draft = draft_of(document)
        key = "id" if draft == 4 else "$id"
        self.resources.setdefault(address, document)
        self.drafts[address] = draft
        waiting: list[tuple[Any, str]] = [(document, address)]
        while waiting:
            value, base = waiting.pop()
            self.budget.spend()
            if isinstance(value, list):
                waiting += [(each, base) for each in value]
                continue
            if not isinstance(value, dict):
                continue
            name = value.get(key)
            if isinstance(name, str) and "$ref" not in value:
                base = self.noted(name, base, value, draft)
            for anchor in (value.get("$anchor"), value.get("$dynamicAnchor")):
                if isinstance(anchor, str):
                    self.anchors[base, anchor] = value
            self.bases[id(value)] = base
            waiting += [(each, base) for word, each in value.items() if word not in DATA]

    def noted(self, name: str, base: str, value: Any, draft: int) -> str:
        address, fragment = defragmented(joined(base, name))
        if name.startswith("#"):
            self.anchors[base, fragment] = value
            return base
        self.resources.setdefault(address, value)
        self.drafts.setdefault(address, draft)
        return address

    def found(self, reference: str, around: Any) -> Any:
        """What a `$ref` in the object `around` means: JSON, or True for what is known without being told."""
        base = self.bases.get(id(around), "")
        address, fragment = defragmented(joined(base, reference))
        if address not in self.resources:
            if address.replace("https://json-schema.org/draft-", "http://json-schema.org/draft-") in DRAFTS:
                return True
            address = defragmented(reference)[0]
        if address not in self.resources:
            raise InvalidSchemaError(f"Unresolved reference: {reference[:200]}")
        document = self.resources[address]
        if not fragment:
            return document
        if not fragment.startswith("/"):
            found = self.anchors.get((self.bases.get(id(document), address), fragment))
        else:
            found = pointed(document, unquote(fragment))
        if found is None:
            raise InvalidSchemaError(f"Unresolved reference: {reference[:200]}")
        return found

    def draft_at(self, value: Any) -> int:
        return self.drafts.get(self.bases.get(id(value), ""), 7)


def pointed(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(word)
        elif isinstance(value, list) and word.isdecimal() and len(word) < 10 and int(word) < len(value):
            value = value[int(word)]
        else:
            return None
    return value


def joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:
        raise InvalidSchemaError(f"Not an address: {name[:200]}") from None


def defragmented(address: str) -> tuple[str, str]:
    try:
        url, fragment = urldefrag(address)
    except ValueError:
        raise InvalidSchemaError(f"Not an address: {address[:200]}") from None
    return url, fragment
