"""Python in a separate process: a test that starts its own Spark must not meet the shared one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

SECONDS_MAX = 600  # several JVMs start


def run_python(source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it; return its output on both streams."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
