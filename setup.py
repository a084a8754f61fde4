"""The optional part of the build: compile the files of COMPILED with mypyc, and add the console's libraries to wheels.

Without mypyc or a C compiler the same files run as plain Python: the installation must not fail because of it. With
the environment variable OTTLA_PURE nothing is compiled. With OTTLA_COMPILED a build that would be plain Python fails
(`make wheels`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py

IS_IN_PLACE = "--inplace" in sys.argv  # tools/compile.sh, for developers: what was compiled before is used again
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}  # other commands only read metadata
IS_BUILDING = not BUILDING.isdisjoint(sys.argv)
BUILD = "build" if IS_IN_PLACE else tempfile.mkdtemp(prefix="ottla-build-")
if not IS_IN_PLACE:
    atexit.register(shutil.rmtree, BUILD, ignore_errors=True)

# `make check` checks types, with all packages installed. An isolated build has none of them, and under the strict rules
# of pyproject.toml a missing package is an error: every wheel without a warm mypy cache would be plain Python.
MYPY_OPTIONS = ["--config-file=", "--no-site-packages", "--ignore-missing-imports"]

NO_WARNINGS = "-Wno-all"  # warnings about generated C are never read, and took half of the compilation time

COMPILED = [
    "src/ottla/storage/truncation.py",
    "src/ottla/base/clock.py",
    "src/ottla/base/file_range.py",
    "src/ottla/protocol/batches.py",
    "src/ottla/protocol/headers.py",
    "src/ottla/protocol/record_columns.py",
    "src/ottla/protocol/records.py",
    "src/ottla/storage/batch_ranges.py",
    "src/ottla/storage/cleaning/batches.py",
    "src/ottla/storage/cleaning/cleaner.py",
    "src/ottla/storage/cleaning/records.py",
    "src/ottla/storage/descriptors.py",
    "src/ottla/storage/index.py",
    "src/ottla/storage/cleaning/offset_map.py",
    "src/ottla/storage/log.py",
    "src/ottla/storage/log_validator.py",
    "src/ottla/storage/log_loader.py",
    "src/ottla/storage/replay.py",
    "src/ottla/storage/scan.py",
    "src/ottla/storage/segment.py",
    "src/ottla/storage/producer_state.py",
    "src/ottla/storage/range_checks.py",
    "src/ottla/metrics/counters.py",
    "src/ottla/metrics/histogram.py",
    "src/ottla/metrics/requests.py",
    "src/ottla/metrics/traffic.py",
    "src/ottla/network/buffers.py",
    "src/ottla/network/in_flight_requests.py",
    "src/ottla/network/connection.py",
    "src/ottla/network/send_queue.py",
    "src/ottla/network/peer.py",
    "src/ottla/network/poller.py",
    "src/ottla/network/tls_transport.py",
    "src/ottla/network/transport.py",
    "src/ottla/quotas/meter.py",
    "src/ottla/quotas/meter_registry.py",
    "src/ottla/replication/follower_rules.py",
    "src/ottla/replication/leader_state.py",
    "src/ottla/replication/partition.py",
    "src/ottla/replication/replica_set.py",
    "src/ottla/replication/waiting_requests.py",
    "src/ottla/coordination/batch.py",
    "src/ottla/coordination/deadlines.py",
    "src/ottla/coordination/machine.py",
    "src/ottla/base/partitioning.py",
    "src/ottla/coordination/runtime.py",
    "src/ottla/coordination/shard.py",
    "src/ottla/groups/classic_group.py",
    "src/ottla/groups/classic_rebalance.py",
    "src/ottla/groups/commit_template.py",
    "src/ottla/groups/offset_expiration.py",
    "src/ottla/groups/group_coordinator.py",
    "src/ottla/groups/offset_manager.py",
    "src/ottla/groups/offsets.py",
    "src/ottla/groups/coordinator_records.py",
    "src/ottla/transactions/transaction_coordinator.py",
    "src/ottla/transactions/transaction_log.py",
    "src/ottla/transactions/transaction.py",
    "src/ottla/base/tasks.py",
    "src/ottla/broker/context.py",
    "src/ottla/security/acl_index.py",
    "src/ottla/security/acls.py",
    "src/ottla/security/authorizer.py",
    "src/ottla/broker/coordinator_service/coordinators.py",
    "src/ottla/broker/dispatch.py",
    "src/ottla/broker/responder.py",
    "src/ottla/broker/fetch_partition_data.py",
    "src/ottla/broker/delayed_fetch.py",
    "src/ottla/broker/fetch_sessions.py",
    "src/ottla/broker/coordinator_service/transaction_markers.py",
    "src/ottla/broker/replica_manager/follower_fetch.py",
    "src/ottla/broker/node.py",
    "src/ottla/broker/services.py",
    "src/ottla/broker/quota_manager.py",
    "src/ottla/broker/delayed_produce.py",
    "src/ottla/broker/coordinator_service/transactional_produce.py",
    "src/ottla/broker/handlers/end_txn.py",
    "src/ottla/broker/handlers/fetch.py",
    "src/ottla/broker/handlers/heartbeat.py",
    "src/ottla/broker/handlers/offset_commit.py",
    "src/ottla/broker/handlers/produce.py",
]


def extensions() -> list[Extension]:
    if os.environ.get("OTTLA_PURE") or not IS_BUILDING:
        return []
    is_needed = bool(os.environ.get("OTTLA_COMPILED"))
    try:
        from mypyc.build import mypycify  # noqa: PLC0415 (optional)
    except ImportError:
        if is_needed:
            raise
        return []
    try:
        level = os.environ.get("MYPYC_OPT_LEVEL", "3")
        options = [f"--cache-dir={BUILD}/mypy", *MYPY_OPTIONS]
        made = mypycify([*options, *COMPILED], opt_level=level, debug_level="0", target_dir=BUILD)
    except SystemExit:  # raised by mypyc for a file that it cannot compile
        if is_needed:
            raise
        print("mypyc failed: ottla is installed as plain Python, which is slower but complete", file=sys.stderr)
        return []
    for extension in made:
        extension.optional = not is_needed
        extension.extra_compile_args.append(NO_WARNINGS)
    return made


class BuildAnew(build):
    """Build in a temporary folder: the clone's build folder may hold stale modules, compiled or not."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = BUILD


class BuildWithPages(build_py):
    """Add the console's JavaScript libraries to a wheel; for an editable installation `make pages` fetches them."""

    def run(self) -> None:
        if not self.editable_mode:
            fetched = subprocess.run([sys.executable, "src/ottla/console/fetch_libraries.py"], check=False)
            if fetched.returncode:
                print("no libraries for the console's pages: its API is installed without them", file=sys.stderr)
        super().run()


setup(ext_modules=extensions(), cmdclass={"build": BuildAnew, "build_py": BuildWithPages})
