"""ssl.cipher.suites: Java's names for what OpenSSL calls otherwise.

Those of TLS 1.3 have the same name everywhere. Python before 3.15 has no function to choose among them, so the one in
OpenSSL is called; what came of it is looked at, and what did not work stops the start instead of being ignored.
"""

from __future__ import annotations

import ctypes
import re
import ssl
import sys
from collections.abc import Sequence
from typing import Final

ALL_OF_TLS13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
OF_TLS13: Final = ALL_OF_TLS13 | {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}
_JAVA: Final = r"(?:TLS|SSL)_(?:(ECDHE|DHE|ECDH)_)?(RSA|ECDSA|DSS)_WITH_(AES_128|AES_256|CHACHA20)_(\w+)"
_SIGNALLING: Final = frozenset({"TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV"})
TLS12: Final = "TLSv1.2"
TLS13: Final = "TLSv1.3"


class CipherSuiteError(ValueError):
    """Cipher suites that cannot be had."""


def choose_suites(context: ssl.SSLContext, suites: Sequence[str], versions: list[str]) -> list[str]:
    """Restrict a context to these suites; the versions of TLS that are left with any."""
    wanted = [name for name in suites if name not in _SIGNALLING]
    if not wanted:
        return versions
    newer = [name for name in wanted if name in OF_TLS13]
    older = [openssl_name(name) for name in wanted if name not in OF_TLS13]
    left = [version for version in versions if (newer if version == TLS13 else older)]
    if not left:
        raise CipherSuiteError(f"ssl.cipher.suites has none for {', '.join(versions)}")
    if TLS12 in left:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise CipherSuiteError(f"none of ssl.cipher.suites={','.join(wanted)} is known to OpenSSL") from None
    if TLS13 in left and set(newer) != ALL_OF_TLS13:
        _choose_of_tls13(context, newer)
    return left


def openssl_name(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 as ECDHE-RSA-AES128-GCM-SHA256; a name of OpenSSL stays as it is."""
    if "-" in name:
        return name
    match = re.fullmatch(_JAVA, name)
    if match is None:
        raise CipherSuiteError(f"ssl.cipher.suites: {name} is not known or not safe any more")
    exchange, signature, cipher, rest = match.groups()
    parts = [part for part in (exchange, signature if exchange else None) if part]
    if cipher == "CHACHA20":
        return "-".join((*parts, "CHACHA20-POLY1305"))
    return "-".join((*parts, cipher.replace("_", ""), *rest.removeprefix("CBC_").split("_")))


def _choose_of_tls13(context: ssl.SSLContext, names: list[str]) -> None:
    text = ":".join(names)
    if hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(text)
    elif sys.implementation.name == "cpython" and sys.version_info < (3, 15):
        import _ssl  # noqa: PLC0415 - only its file is wanted

        # The first field of Python's object is OpenSSL's.
        inner = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
        function = getattr(ctypes.CDLL(getattr(_ssl, "__file__", None)), "SSL_CTX_set_ciphersuites", None)
        if function is not None:
            function(inner, ctypes.c_char_p(text.encode("ascii")))
    in_force = [str(suite["name"]) for suite in context.get_ciphers() if suite["name"] in OF_TLS13]
    if in_force != names:
        raise CipherSuiteError(
            f"ssl.cipher.suites: this Python cannot choose {', '.join(names)}: name all three of TLS 1.3 or none "
            f"({', '.join(sorted(ALL_OF_TLS13))})"
        )
