"""Resolves `$ref`: within the schema, or to one of its references. Nothing else is reachable.

A reference is looked up as written, and as a URI relative to the nearest enclosing `$id`. The URIs of JSON Schema's own
drafts are known and accept anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ottla.registry.formats.schema_format import InvalidSchemaError, StepLimit, read_json

DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
DATA = frozenset(("enum", "const", "default", "examples"))  # these keywords contain data, not schemas


def draft_of(value: Any) -> int:
    """The draft of a schema; draft 7 by default, as in Confluent's registry."""
    given = value.get("$schema") if isinstance(value, dict) else None
    if not isinstance(given, str):
        return 7
    return DRAFTS.get(given.rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-"), 7)


class Documents:
    """The schema and its references."""

    def __init__(self, root: Any, references: Mapping[str, str], budget: StepLimit) -> None:
        self.budget = budget
        self.resources: dict[str, Any] = {}
        self.anchors: dict[tuple[str, str], Any] = {}
        self.bases: dict[int, str] = {}  # of each object, by identity; the documents live as long as this object
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
        """Index all identifiers of a document, without recursion."""
        draft = draft_of(document)
        key = "id" if draft == 4 else "$id"
        self.resources.setdefault(address, document)
        self.drafts[address] = draft
        waiting: list[tuple[Any, str]] = [(document, address)]
        while waiting:
            value, base = waiting.pop()
            self.budget.consume()
            if isinstance(value, list):
                waiting += [(each, base) for each in value]
                continue
            if not isinstance(value, dict):
                continue
            name = value.get(key)
            if isinstance(name, str) and "$ref" not in value:
                base = self.add_identifier(name, base, value, draft)
            for anchor in (value.get("$anchor"), value.get("$dynamicAnchor")):
                if isinstance(anchor, str):
                    self.anchors[base, anchor] = value
            self.bases[id(value)] = base
            waiting += [(each, base) for word, each in value.items() if word not in DATA]

    def add_identifier(self, name: str, base: str, value: Any, draft: int) -> str:
        address, fragment = defragmented(joined(base, name))
        if name.startswith("#"):
            self.anchors[base, fragment] = value
            return base
        self.resources.setdefault(address, value)
        self.drafts.setdefault(address, draft)
        return address

    def resolve(self, reference: str, around: Any) -> Any:
        """The target of a `$ref` in the object `around`: JSON, or True for a standard draft."""
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
