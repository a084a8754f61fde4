"""`ottla deploy`: writes the files of a deployment, and checks them.

`init` writes files that the user then owns: nothing is regenerated later. `check` examines the current files, and this
machine as far as the files refer to it.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.cli.arguments import Argument, Command, Parser, flag
from ottla.cli.deploy.compose import compose_file, compose_files, read_compose
from ottla.cli.deploy.deployment import Deployment
from ottla.cli.deploy.deployment_plan import (
    BROKERS_MAX,
    COMPOSE,
    HELM,
    IMAGE,
    KINDS,
    LOCALHOST,
    NODE_PORT,
    PORT,
    SYSTEMD,
    DeploymentPlan,
    check_plan,
)
from ottla.cli.deploy.file_checks import check_deployment
from ottla.cli.deploy.helm import CHART, helm_files, read_helm
from ottla.cli.deploy.host_checks import check_host
from ottla.cli.deploy.systemd import read_systemd, systemd_files, unit_files
from ottla.cli.deploy.templates import check_target, count_text, write_files
from ottla.cli.terminal import EXIT_FAILED, UsageError, print_line, warn
from ottla.operations.doctor.findings import Severity

EXAMPLES = """
ottla deploy init --as compose cluster
ottla deploy init --as compose --host kafka.example --port 29092 cluster
ottla deploy init --as systemd --host one.example,two.example,three.example cluster
ottla deploy init --as helm --image registry.example/ottla:1.0 --host nodes.example chart
ottla deploy check cluster
ottla deploy check chart --files-only
"""
WRITERS: dict[str, Callable[[DeploymentPlan, str], dict[str, str]]] = {
    COMPOSE: compose_files,
    SYSTEMD: systemd_files,
    HELM: helm_files,
}
NEXT = {
    COMPOSE: "cd {folder} && docker compose up --detach --wait",
    SYSTEMD: "see {folder}/README.md for the installation",
    HELM: "helm install kafka {path}",
}


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    code: int = options.action(options)
    return code


def _parser() -> Parser:
    return Parser(
        prog="ottla deploy",
        description="Write the files of a deployment, and check them.",
        examples=EXAMPLES,
        commands=(
            Command(
                "init",
                "write the files into a new folder",
                _init,
                Argument("folder", metavar="DIR", help="an empty or new folder"),
                Argument("--as", dest="kind", choices=KINDS, required=True, help="the platform"),
                Argument("--brokers", type=int, default=3, metavar="N", help=f"1 to {BROKERS_MAX} (default: 3)"),
                Argument(
                    "--zookeeper", type=int, default=3, metavar="N", help="number of ZooKeeper servers (default: 3)"
                ),
                Argument(
                    "--host",
                    metavar="NAME[,NAME...]",
                    help=f"advertised host: one name for all brokers, or one for each (default: {LOCALHOST}; "
                    "with helm the address of each broker's node)",
                ),
                Argument(
                    "--port",
                    type=int,
                    metavar="N",
                    help="port of the first broker; others on its machine count up "
                    f"(default: {PORT}; with helm {NODE_PORT})",
                ),
                Argument("--image", default=IMAGE, metavar="NAME", help=f"for compose and helm (default: {IMAGE})"),
                allow_abbrev=False,
            ),
            Command(
                "check",
                "check the files",
                _check,
                Argument("folder", metavar="DIR", help="a folder with files of init, as they are now"),
                flag("--files-only", help="skip the names, ports, folders and clocks of this machine"),
                flag("--json", help="findings as one JSON document"),
                allow_abbrev=False,
            ),
        ),
    )


def _init(options: argparse.Namespace) -> int:
    plan = plan_of(options)
    check_target(Path(options.folder))  # report problems of the folder before warnings
    doubts = check_plan(plan)
    written = WRITERS[plan.kind](plan, command_line(options))
    write_files(Path(options.folder), written)
    for doubt in doubts:
        warn(f"warning: {doubt}")
    folder = shlex.quote(options.folder)
    path = folder if folder.startswith(("/", ".", "~")) else f"./{folder}"
    print(f"Wrote {len(written)} files to {options.folder}:")
    for name in sorted(written):
        print(f"  {name}")
    print(f"Check them with: ottla deploy check {folder}")
    print(f"Then: {NEXT[plan.kind].format(folder=folder, path=path)}")
    return 0


def plan_of(options: argparse.Namespace) -> DeploymentPlan:
    """The plan of the options; some defaults depend on the platform."""
    is_helm = options.kind == HELM
    hosts = () if is_helm else (LOCALHOST,)
    if options.host is not None:
        hosts = tuple(name.strip() for name in options.host.split(","))
        if not all(hosts):
            raise UsageError(f"--host {options.host!r} has an empty name: NAME, or NAME,NAME,...")
    port = options.port if options.port is not None else NODE_PORT if is_helm else PORT
    return DeploymentPlan(options.kind, options.brokers, options.zookeeper, hosts, port, options.image)


def command_line(options: argparse.Namespace) -> str:
    """The command that creates the same files, for their headers."""
    words = ["ottla", "deploy", "init", "--as", options.kind]
    words += ["--brokers", str(options.brokers), "--zookeeper", str(options.zookeeper)]
    for name in ("host", "port"):
        if getattr(options, name) is not None:
            words += [f"--{name}", str(getattr(options, name))]
    if options.image != IMAGE:
        words += ["--image", options.image]
    return shlex.join([*words, "DIR"])


def _check(options: argparse.Namespace) -> int:
    deployment = read_deployment(Path(options.folder))
    found = [] if options.files_only else check_host(deployment)
    if options.files_only:
        deployment.unchecked.append("names, ports, folders, limits and clocks of this machine (--files-only)")
    deployment.findings += found
    findings = check_deployment(deployment)
    if options.json:
        rows = [{**finding._asdict(), "severity": finding.severity.value} for finding in findings]
        document = {"kind": deployment.kind, "findings": rows, "not_checked": deployment.unchecked}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            print_line(str(finding))
        for each in dict.fromkeys(deployment.unchecked):
            print_line(f"not checked: {each}")
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    warn(_summary(deployment, problems, len(findings) - problems))
    return EXIT_FAILED if problems else 0


def read_deployment(folder: Path) -> Deployment:
    """Read a deployment of any kind. Raises UsageError if the folder contains none."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: name the one of ottla deploy init")
    if (folder / CHART).is_file():
        return read_helm(folder)
    if compose_file(folder) is not None:
        return read_compose(folder)
    if unit_files(folder):
        return read_systemd(folder)
    raise UsageError(f"{folder} has neither a compose.yaml nor a Chart.yaml nor units of systemd: nothing to check")


def _summary(deployment: Deployment, problems: int, warnings: int) -> str:
    servers = count_text(len(deployment.zookeepers), "ZooKeeper")
    size = f"{deployment.kind}, {count_text(deployment.broker_count, 'broker')}, {servers}"
    if not problems and not warnings:
        return f"Nothing was found that would not work ({size})."
    return f"{count_text(problems, 'problem')}, {count_text(warnings, 'warning')} ({size})."
