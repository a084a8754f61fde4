"""Python in a process of its own: a test that starts a Spark must not meet the one that all the others share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

SECONDS_MAX = 600  # several JVMs start


def run_python(source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it; what it prints on both streams comes back."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
