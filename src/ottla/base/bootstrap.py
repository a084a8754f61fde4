"""Which broker is meant where nobody names one: that of the environment, else the one that `ottla up` starts."""

from __future__ import annotations

import os
from typing import Final

BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVER"  # for those who do not want to write it each time
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def default_bootstrap() -> str:
    return os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
