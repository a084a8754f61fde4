"""Stores SCRAM users before the first start of a broker (`kafka-storage.sh format --add-scram`)."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence

from ottla.cli.java.options import OptionError
from ottla.controller import tree
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, StoreError, StoreOperation
from ottla.security.scram_credentials import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    credential_from_salted,
    make_credential,
)

ARGUMENTS = ("name", "password", "iterations", "salt", "saltedpassword")
_CREDENTIAL = re.compile(r"([^=]+)=\[(.*)\]", re.DOTALL)
_ARGUMENT = re.compile(r'\s*([^=,]+)=(?:"([^"]*)"|([^,]*))\s*(?:,|$)')


def parse_users(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse `SCRAM-SHA-256=[name=alice,password=secret]` into settings per user. Error messages contain no password."""
    users: dict[str, dict[str, str]] = {}
    for text in texts:
        match = _CREDENTIAL.fullmatch(text.strip())
        if match is None:
            raise OptionError("Failed to parse add-scram: it is not of the form MECHANISM=[name=...,password=...]")
        mechanism = match[1].strip()
        if mechanism not in HASHES:
            raise OptionError(f"The add-scram mechanism {mechanism} is not supported.")
        arguments = _arguments(match[2])
        name = arguments.get("name")
        if not name:
            raise OptionError("You must supply 'name' to add-scram")
        config = users.setdefault(name, {})
        if mechanism in config:
            raise OptionError(f"add-scram has two passwords of {name} for {mechanism}")
        config[mechanism] = _credential(mechanism, arguments).to_text()
    return users


def _arguments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _ARGUMENT.match(text, position)
        if match is None or match[1].strip() not in ARGUMENTS or match[1].strip() in found:
            raise OptionError(f"add-scram accepts {', '.join(ARGUMENTS)}, each once, separated by commas")
        found[match[1].strip()] = match[2] if match[2] is not None else match[3]
        position = match.end()
    return found


def _credential(mechanism: str, arguments: Mapping[str, str]) -> ScramCredential:
    iterations = arguments.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or int(iterations) < ITERATIONS_MIN:
        raise OptionError(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram")
    if int(iterations) > ITERATIONS_MAX:
        raise OptionError(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram")
    salt = _decoded(arguments, "salt")
    salted = _decoded(arguments, "saltedpassword")
    if salted is not None:
        if salt is None:
            raise OptionError("You must supply 'salt' with 'saltedpassword' to add-scram")
        if "password" in arguments:
            raise OptionError("You must only supply one of 'password' or 'saltedpassword' to add-scram")
        return credential_from_salted(mechanism, salted, salt, int(iterations))
    if not arguments.get("password"):
        raise OptionError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    return make_credential(mechanism, arguments["password"].encode(), salt, int(iterations))


def _decoded(arguments: Mapping[str, str], name: str) -> bytes | None:
    try:
        return base64.b64decode(arguments[name], validate=True) if name in arguments else None
    except binascii.Error:
        raise OptionError(f"'{name}' of add-scram is not base64") from None


def write_users(folder: str, users: Mapping[str, Mapping[str, str]]) -> None:
    """Write users to the metadata store in a folder; creates the store if it is missing and keeps other data."""
    try:
        os.makedirs(folder, exist_ok=True)
        store = SqliteTree(os.path.join(folder, FILE_NAME))
        store.open()
    except OSError as problem:
        raise OptionError(f"{folder} cannot be written: {problem.strerror}") from None
    except StoreError as problem:
        raise OptionError(str(problem)) from None
    try:
        parents = (tree.CONFIG, f"{tree.CONFIG}/{tree.USER_CONFIG}")
        operations: list[StoreOperation] = [CreateNode(path) for path in parents if store.get(path) is None]
        for name, config in users.items():
            operations.append(CreateNode(tree.config_path(tree.USER_CONFIG, name), tree.encode_config(config)))
        store.multi(operations)
    except StoreError as problem:
        raise OptionError(str(problem)) from None
    finally:
        store.close()
