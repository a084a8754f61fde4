"""The default bootstrap server: the one in the environment, else the broker that `ottla up` starts."""

from __future__ import annotations

import os
from typing import Final

BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVER"  # the default of --bootstrap-server
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def default_bootstrap() -> str:
    return os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
