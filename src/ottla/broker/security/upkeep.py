"""What security has to be looked after for while a broker runs: certificates that are replaced, tokens that expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.logs.housekeeping import Housekeeping
from ottla.broker.parts import BrokerParts
from ottla.broker.security.tokens import remove_expired

if TYPE_CHECKING:
    from ottla.broker.security.tls import BrokerTls


def keep_security(housekeeping: Housekeeping, parts: BrokerParts, tls: BrokerTls | None) -> None:
    if tls is not None:
        housekeeping.every("certificates", 0, lambda: tls.look_ms, tls.look)
    if parts.tokens.is_enabled:
        look_ms = parts.node.settings.delegation_token_expiry_check_interval_ms
        housekeeping.every("tokens", look_ms, lambda: look_ms, remove_expired(parts.controller, parts.node.clock))
