"""Open files: a broker needs one per active partition and connection, so it takes all that it may have."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

ENOUGH = 100_000


def raise_file_limit() -> int:
    """Raise the soft limit as far as the hard one allows; the result is the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(soft, ENOUGH), hard):
        if wanted == soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        except (ValueError, OSError):
            continue  # the hard limit is lower, or raising it needs rights that we do not have
        soft = wanted
        break
    if soft < ENOUGH // 10:
        logger.warning("only %d files may be open at once: raise `ulimit -n` for many partitions or clients", soft)
    return soft
