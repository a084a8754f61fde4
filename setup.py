"""The optional half of the build: files that run once per record or per request are compiled with mypyc, and a wheel
gets the libraries of the console's pages.

Without mypyc or a C compiler the very same files serve as plain Python: nothing may fail because of it. With the
environment variable OTTLA_PURE set nothing is compiled. With OTTLA_COMPILED a build that would be plain Python fails
instead (`make wheels`).
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

IS_IN_PLACE = "--inplace" in sys.argv  # tools/compile.sh, for those who develop: what was compiled before is used again
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}  # others only ask what ottla is
IS_BUILDING = not BUILDING.isdisjoint(sys.argv)
BUILD = "build" if IS_IN_PLACE else tempfile.mkdtemp(prefix="ottla-build-")
if not IS_IN_PLACE:
    atexit.register(shutil.rmtree, BUILD, ignore_errors=True)

# Types are checked by `make check`, with all packages at hand. A build has none of them, and must not depend on them:
# by the strict rules of pyproject.toml a missing one is an error, so a wheel was plain Python, unless a check of types
# had left its cache behind.
MYPY_OPTIONS = ["--config-file=", "--no-site-packages", "--ignore-missing-imports"]

NO_WARNINGS = "-Wno-all"  # nobody reads what is said about generated C, and to find it took half of the time

COMPILED = [
    "src/ottla/base/clock.py",
    "src/ottla/base/file_range.py",
    "src/ottla/protocol/batches.py",
    "src/ottla/protocol/headers.py",
    "src/ottla/protocol/record_columns.py",
    "src/ottla/protocol/records.py",
    "src/ottla/storage/boundaries.py",
    "src/ottla/storage/cleaning/batches.py",
    "src/ottla/storage/cleaning/log.py",
    "src/ottla/storage/cleaning/records.py",
    "src/ottla/storage/cleaning/transactions.py",
    "src/ottla/storage/cutting.py",
    "src/ottla/storage/descriptors.py",
    "src/ottla/storage/index.py",
    "src/ottla/storage/cleaning/key_map.py",
    "src/ottla/storage/log.py",
    "src/ottla/storage/log_files.py",
    "src/ottla/storage/epoch_mending.py",
    "src/ottla/storage/recovery.py",
    "src/ottla/storage/replay.py",
    "src/ottla/storage/scan.py",
    "src/ottla/storage/segment.py",
    "src/ottla/storage/segment_times.py",
    "src/ottla/storage/producers.py",
    "src/ottla/storage/verification.py",
    "src/ottla/metrics/counters.py",
    "src/ottla/metrics/error_codes.py",
    "src/ottla/metrics/histogram.py",
    "src/ottla/metrics/requests.py",
    "src/ottla/metrics/traffic.py",
    "src/ottla/network/answer_frames.py",
    "src/ottla/network/buffers.py",
    "src/ottla/network/calls_under_way.py",
    "src/ottla/network/client_facts.py",
    "src/ottla/network/connection.py",
    "src/ottla/network/peer.py",
    "src/ottla/network/poller.py",
    "src/ottla/network/small_ranges.py",
    "src/ottla/network/tls_transport.py",
    "src/ottla/network/transport.py",
    "src/ottla/quotas/meter.py",
    "src/ottla/quotas/shares.py",
    "src/ottla/replication/following.py",
    "src/ottla/replication/following_replica.py",
    "src/ottla/replication/leading.py",
    "src/ottla/replication/partition.py",
    "src/ottla/replication/replica.py",
    "src/ottla/replication/replica_set.py",
    "src/ottla/replication/role.py",
    "src/ottla/replication/waiting.py",
    "src/ottla/coordination/batch.py",
    "src/ottla/coordination/deadlines.py",
    "src/ottla/coordination/machine.py",
    "src/ottla/base/partitioning.py",
    "src/ottla/coordination/runtime.py",
    "src/ottla/coordination/shard.py",
    "src/ottla/groups/classic.py",
    "src/ottla/groups/classic_answers.py",
    "src/ottla/groups/classic_group.py",
    "src/ottla/groups/classic_rebalance.py",
    "src/ottla/groups/commit_form.py",
    "src/ottla/groups/expiry.py",
    "src/ottla/groups/forgetting.py",
    "src/ottla/groups/machine.py",
    "src/ottla/groups/offset_machine.py",
    "src/ottla/groups/offset_records.py",
    "src/ottla/groups/offsets.py",
    "src/ottla/groups/records.py",
    "src/ottla/transactions/expiry.py",
    "src/ottla/transactions/machine.py",
    "src/ottla/transactions/records.py",
    "src/ottla/transactions/rules.py",
    "src/ottla/transactions/transaction.py",
    "src/ottla/base/tasks.py",
    "src/ottla/broker/context.py",
    "src/ottla/security/acl_index.py",
    "src/ottla/security/acls.py",
    "src/ottla/security/authorizer.py",
    "src/ottla/broker/coordinators/coordinators.py",
    "src/ottla/broker/dispatch.py",
    "src/ottla/broker/responder.py",
    "src/ottla/broker/fetch_data.py",
    "src/ottla/broker/fetching.py",
    "src/ottla/broker/fetch_sessions.py",
    "src/ottla/broker/coordinators/markers.py",
    "src/ottla/broker/replicas/replica_reading.py",
    "src/ottla/broker/node.py",
    "src/ottla/broker/parts.py",
    "src/ottla/broker/quota_gate.py",
    "src/ottla/broker/produce_waiting.py",
    "src/ottla/broker/coordinators/transactional_produce.py",
    "src/ottla/broker/coordinators/waiting_answers.py",
    "src/ottla/broker/handlers/commits_alike.py",
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
        from mypyc.build import mypycify  # noqa: PLC0415 (only there where it can be used)
    except ImportError:
        if is_needed:
            raise
        return []
    try:
        level = os.environ.get("MYPYC_OPT_LEVEL", "3")
        options = [f"--cache-dir={BUILD}/mypy", *MYPY_OPTIONS]
        made = mypycify([*options, *COMPILED], opt_level=level, debug_level="0", target_dir=BUILD)
    except SystemExit:  # mypyc's way to report a file that it cannot compile
        if is_needed:
            raise
        print("mypyc failed: ottla is installed as plain Python, which is slower but complete", file=sys.stderr)
        return []
    for extension in made:
        extension.optional = not is_needed
        extension.extra_compile_args.append(NO_WARNINGS)
    return made


class BuildAnew(build):
    """In a folder of its own: one that stands in the clone may hold modules of former times, compiled or not."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = BUILD


class BuildWithPages(build_py):
    """A wheel holds what the console's pages are made with; after an editable installation `make pages` fetches it."""

    def run(self) -> None:
        if not self.editable_mode:
            fetched = subprocess.run([sys.executable, "src/ottla/console/libraries.py"], check=False)
            if fetched.returncode:
                print("no libraries for the console's pages: its API is installed without them", file=sys.stderr)
        super().run()


setup(ext_modules=extensions(), cmdclass={"build": BuildAnew, "build_py": BuildWithPages})
