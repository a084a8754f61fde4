"""Readable messages for TLS errors, in place of OpenSSL's reason codes. Pure."""

from __future__ import annotations

from typing import Final

_PLAINTEXT_ERRORS: Final = "the other side does not speak TLS: one of both has the wrong port or security.protocol"
_NO_VERSION: Final = "no version of TLS in common (ssl.enabled.protocols)"
_NO_CIPHER: Final = "no cipher suite in common (ssl.cipher.suites)"
_NO_CERTIFICATE: Final = "the client shows no certificate, and ssl.client.auth=required"
_REFUSED: Final = "the other side does not accept our certificate"

_MESSAGES: Final = {
    "WRONG_VERSION_NUMBER": _PLAINTEXT_ERRORS,
    "HTTP_REQUEST": _PLAINTEXT_ERRORS,
    "HTTPS_PROXY_REQUEST": _PLAINTEXT_ERRORS,
    "UNKNOWN_PROTOCOL": _PLAINTEXT_ERRORS,
    "RECORD_LAYER_FAILURE": _PLAINTEXT_ERRORS,
    "PACKET_LENGTH_TOO_LONG": _PLAINTEXT_ERRORS,
    "BAD_RECORD_TYPE": _PLAINTEXT_ERRORS,
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": _NO_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_VERSION,
    "NO_SHARED_CIPHER": _NO_CIPHER,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": f"the other side refuses: {_NO_CIPHER}, or it wants a certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants a certificate of ours (ssl.keystore.location)",
    "TLSV1_ALERT_UNKNOWN_CA": f"{_REFUSED}: it does not trust who signed it (its trust store)",
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_REFUSED}: it has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED,
    "TLSV1_ALERT_ACCESS_DENIED": _REFUSED,
    "TLSV1_ALERT_DECRYPT_ERROR": _REFUSED,
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    "EE_KEY_TOO_SMALL": "its key is too short to be safe",
    "CA_MD_TOO_WEAK": "it is signed with a hash that is not safe any more",
    "BAD_DECRYPT": "the password of the private key is wrong (ssl.key.password)",
    "BAD_PASSWORD_READ": "the password of the private key is missing (ssl.key.password)",
}


def describe_tls_error(error: Exception) -> str:
    """One sentence without a full stop about an error of TLS, or any other socket error."""
    reason = getattr(error, "reason", None) or ""
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"its certificate is refused: {getattr(error, 'verify_message', None) or 'it cannot be verified'}"
    if reason in _MESSAGES:
        return _MESSAGES[reason]
    if reason:
        return str(reason).replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
