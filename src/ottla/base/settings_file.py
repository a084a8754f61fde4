"""Reading a settings file from disk: what can be wrong with it is said in one line with the cure."""

from __future__ import annotations

import os
from typing import Final

from ottla.base.properties import PropertiesError, parse_properties
from ottla.base.settings import SettingsError

FILE_BYTES_MAX: Final = 1 << 20
READABLE_BY_OTHERS: Final = 0o044


def read_settings_file(path: str, texts: dict[str, str], places: dict[str, str], warnings: list[str]) -> None:
    """Add a file's keys to `texts` and where each stands to `places`."""
    try:
        for name, value, line in parse_properties(_read_text(path)):
            if name in texts:
                warnings.append(f"{path}:{line}: {name} was set before ({places[name]}): the last value counts")
            texts[name] = value
            places[name] = f"{path}:{line}"
    except PropertiesError as error:
        raise SettingsError(f"{path}:{error.line}: {error.cause}") from None


def secret_file_warnings(path: str) -> list[str]:
    """Whether a file that holds a password can be read by others."""
    if os.stat(path).st_mode & READABLE_BY_OTHERS:
        return [f"{path}: holds a password and can be read by other users: chmod 600 {path}"]
    return []


def _read_text(path: str) -> str:
    data = _read_bytes(path)
    if len(data) > FILE_BYTES_MAX:
        raise SettingsError(f"{path}: larger than {FILE_BYTES_MAX} bytes: this is no settings file")
    if b"\0" in data:
        raise SettingsError(f"{path}: holds binary data: give a text file with lines of key=value")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # Java's own reading of such files


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file: give the path of a server.properties") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: is a folder: give the settings file in it") from None
    except PermissionError:
        raise SettingsError(f"{path}: may not be read by this user: change its owner or mode") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise SettingsError(f"{path!r}: is no file name") from None
