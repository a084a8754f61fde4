"""Compiles .proto files to descriptor sets with grpcio-tools, in a child process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILE_TIMEOUT_S = 60


class ProtocError(Exception):
    """The compilation failed; str() is a sentence."""


def compile_proto(path: Path) -> bytes:
    """Compile one file; imports are resolved next to it. Raises ProtocError."""
    tools = importlib.util.find_spec("grpc_tools")
    if tools is None or tools.origin is None:
        raise ProtocError(
            "compiling .proto files needs grpcio-tools: pip install grpcio-tools, or give a descriptor set"
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent.resolve()}",
            f"-I{Path(tools.origin).parent / '_proto'}", "--include_imports", f"--descriptor_set_out={out}", path.name,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise ProtocError(f"{path.name} does not compile within {COMPILE_TIMEOUT_S} s") from None
        if done.returncode or not out.exists():
            said = done.stderr.strip().splitlines()
            raise ProtocError(f"{path.name} does not compile: {said[0] if said else 'protoc reports no cause'}")
        return out.read_bytes()
