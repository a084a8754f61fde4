"""Restrictions on TLS and SASL settings that are changed through the admin API. Pure.

The right to change a broker's settings must not grant the right to read its files, run its programs or load code (the
class of CVE-2025-27818 and CVE-2025-27819).

Rules:
1. A file or a command must be in a directory of `ottla.dynamic.config.allowed.paths` in the broker's own file. Paths
   are absolute; symbolic links in such a directory are the responsibility of its owner.
2. A class must be the current one: there is no JVM to load another.
3. A login module must be one of Kafka's, and the files in its options are subject to rule 1. Messages never contain the
   values of options.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.setting_types import ConfigType, invalid_value

ALLOWED_PATHS: Final = "ottla.dynamic.config.allowed.paths"
PATHS: Final = frozenset({"ssl.keystore.location", "ssl.truststore.location", "sasl.kerberos.kinit.cmd"})
NO_JVM: Final = "There is no JVM to load classes."
JAAS_PATHS: Final = ("keyTab", "keytab", "ticketCache")


def dynamic_config_problem(settings: BrokerSettings, name: str, text: str) -> str | None:
    """Return the reason why a broker with these settings rejects this value through the admin API, or None."""
    key = find_key(name)
    if key is None:
        return None
    if key.kind is ConfigType.CLASS:
        counts = settings.explicit.get(name, settings.explicit.get(key.name, key.default))
        return (
            None if text == (counts or "") else invalid_value(name, text, f"Class {text} could not be found. {NO_JVM}")
        )
    if key.name in PATHS:
        return next(_path_problems(settings, name, [text] if text else []), None)
    if key.name == "sasl.jaas.config":
        return _jaas_problem(settings, name, text)
    return None


def _jaas_problem(settings: BrokerSettings, name: str, text: str) -> str | None:
    from ottla.security.jaas import LOGIN_MODULES, JaasError, parse_value  # noqa: PLC0415 (brokers without logins start without it)

    try:
        module = parse_value(text)
    except JaasError as problem:
        return f"{name}: {problem}"
    if module.name not in LOGIN_MODULES:
        return f"{name} names another login module than {', '.join(LOGIN_MODULES)}"
    paths = [module.options[option].removeprefix("FILE:") for option in JAAS_PATHS if option in module.options]
    return next(_path_problems(settings, name, paths), None)


def _path_problems(settings: BrokerSettings, name: str, paths: Sequence[str]) -> Iterator[str]:
    folders = [os.path.normpath(folder) for folder in settings.ottla_dynamic_config_allowed_paths]
    for path in paths:
        if not any(_is_below(path, folder) for folder in folders):
            yield (
                f"{name} names a file outside of the folders that {ALLOWED_PATHS} of the broker's server.properties "
                f"allows ({', '.join(folders) or 'none'})"
            )


def _is_below(path: str, folder: str) -> bool:
    return os.path.isabs(path) and os.path.normpath(path).startswith(folder.rstrip("/") + "/")
