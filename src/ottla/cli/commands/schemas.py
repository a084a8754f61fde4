"""`ottla schemas`: lists, shows, registers, checks, deletes, exports and imports subjects of a schema registry."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.base.text import escape_json
from ottla.cli.arguments import Argument, Command, Parser, flag, parse_pairs, positive
from ottla.cli.client_settings import command_properties
from ottla.cli.registry_options import REGISTRY, registry_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, UsageError, confirm, print_line, print_text, warn
from ottla.operations.schema_registry.client import LATEST, RegistryClient
from ottla.operations.schema_registry.folders import (
    drafts_of_folder,
    export_registry,
    import_registry,
    kind_of,
    read_draft_file,
    read_folder,
)
from ottla.operations.schema_registry.schemas import KINDS, LEVELS, TYPES, Reference, UnregisteredSchema

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
EXAMPLES = """
ottla schemas list
ottla schemas register orders-value order.avsc
ottla schemas check orders-value new-order.avsc       exit code 1 and the reasons if it is incompatible
ottla schemas show orders-value 2
ottla schemas config orders-value --level FULL_TRANSITIVE
ottla schemas export backup
ottla schemas import backup --registry http://other:8081
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    properties = command_properties(getattr(options, "command_config", None))
    client = registry_of(options, properties)
    assert client is not None
    code: int = options.action(client, options)
    return code


COMMAND_CONFIG = Argument(
    "--command-config", default=argparse.SUPPRESS, metavar="FILE", help="file with properties: logins, certificates"
)
SCHEMA_ARGUMENTS = (
    Argument("subject", metavar="SUBJECT|FOLDER", help="or a folder with files called SUBJECT.avsc, …"),
    Argument("file", nargs="?", metavar="FILE", help="ends in .avsc, .json or .proto"),
    Argument("--type", choices=[name.lower() for name in KINDS], help="if the suffix does not determine it"),
    Argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME=SUBJECT:VERSION",
        help="a schema that this one references",
    ),
)


def _parser() -> Parser:
    return Parser(
        prog="ottla schemas",
        description="The subjects of a schema registry.",
        examples=EXAMPLES,
        shared=(REGISTRY, COMMAND_CONFIG),
        commands=(
            *_reading_commands(),
            Command(
                "register",
                "a new version of a subject, or of all files of a folder",
                _register,
                flag("--normalize", help="store the schema in its normal form"),
                *SCHEMA_ARGUMENTS,
            ),
            Command(
                "check",
                "check the compatibility of a schema with a subject",
                _check,
                Argument("--version", metavar="VERSION", help="against this one, or latest (default: by the level)"),
                *SCHEMA_ARGUMENTS,
            ),
            Command(
                "delete",
                "delete a subject, or a version of it",
                _delete,
                Argument("subject", metavar="SUBJECT"),
                Argument("--version", metavar="VERSION", help="only this one"),
                flag("--permanent", help="delete permanently; it must already be deleted"),
                flag("--yes", "-y", help="skip the confirmation"),
            ),
            Command(
                "config",
                "compatibility level, mode and more, of all or of a subject",
                _config,
                Argument("subject", nargs="?", metavar="SUBJECT", help="default: the global configuration"),
                Argument("--level", type=str.upper, choices=LEVELS, metavar="LEVEL", help=", ".join(LEVELS)),
                Argument("--mode", type=str.upper, choices=MODES, metavar="MODE", help=", ".join(MODES)),
                Argument("--set", action="append", default=[], metavar="NAME=VALUE", help="such as normalize=true"),
                flag("--remove", help="remove the subject's own configuration"),
            ),
            Command(
                "import",
                "import exported schemas with their ids and versions",
                _import,
                Argument("folder", metavar="FOLDER"),
            ),
        ),
    )


def _reading_commands() -> tuple[Command, ...]:
    deleted = flag("--deleted", help="include subjects that are deleted but not permanently")
    as_json = flag("--json", help="for programs")
    return (
        Command(
            "list",
            "the subjects and their newest versions",
            _list,
            Argument(
                "prefix", nargs="?", metavar="PREFIX", help="only subjects with this prefix; :*: means all contexts"
            ),
            deleted,
            as_json,
        ),
        Command(
            "show",
            "the text of a schema",
            _show,
            Argument("subject", nargs="?", metavar="SUBJECT"),
            Argument("version", nargs="?", default=LATEST, metavar="VERSION", help="a number (default: the newest)"),
            Argument("--id", type=positive, metavar="N", help="by its id instead of a subject"),
            Argument("--guid", metavar="GUID", help="by its GUID instead of a subject"),
            deleted,
            as_json,
        ),
        Command(
            "export",
            "all versions of all subjects, or of some, as files of a folder",
            _export,
            Argument("folder", metavar="FOLDER"),
            Argument("subjects", nargs="*", metavar="SUBJECT"),
            deleted,
        ),
    )


def _list(client: RegistryClient, options: argparse.Namespace) -> int:
    found = [
        (subject, versions, client.version(subject, versions[-1], deleted=options.deleted))
        for subject in client.subjects(options.prefix, deleted=options.deleted)
        if (versions := client.versions(subject, deleted=options.deleted))
    ]
    if options.json:
        rows = [
            {"subject": subject, "versions": versions, "id": newest.schema_id, "type": TYPES[newest.draft.kind]}
            for subject, versions, newest in found
        ]
        print(escape_json(json.dumps(rows, ensure_ascii=False)))
        return 0
    table = [
        (subject, ",".join(map(str, versions)), str(newest.schema_id), TYPES[newest.draft.kind])
        for subject, versions, newest in found
    ]
    print_table(("Subject", "Versions", "Newest id", "Type"), table)
    return 0


def _show(client: RegistryClient, options: argparse.Namespace) -> int:
    if sum(each is not None for each in (options.subject, options.id, options.guid)) != 1:
        raise UsageError("name exactly one of a subject, --id and --guid")
    fields: dict[str, Any] = {}
    if options.subject is not None:
        found = client.version(options.subject, options.version, deleted=options.deleted)
        draft = found.draft
        fields = {"subject": found.subject, "version": found.version, "id": found.schema_id}
    else:
        name = options.id if options.id is not None else options.guid
        draft = client.draft(name)
        fields = {"id" if options.id is not None else "guid": name}
    if options.json:
        document = fields | {"schemaType": TYPES[draft.kind]} | draft.body()
        print(escape_json(json.dumps(document, ensure_ascii=False)))
    else:
        print_text(draft.text)
    return 0


def _register(client: RegistryClient, options: argparse.Namespace) -> int:
    for subject, draft in _drafts(options):
        schema_id = client.register(subject, draft, normalize=options.normalize)
        print_line(f"{subject}\t{schema_id}" if options.file is None else str(schema_id))
    return 0


def _check(client: RegistryClient, options: argparse.Namespace) -> int:
    code = 0
    for subject, draft in _drafts(options):
        verdict = client.check(subject, draft, options.version)
        print_line(f"{subject}\t{'compatible' if verdict.is_compatible else 'incompatible'}")
        for message in verdict.messages:
            print_line(f"  {message}")
        if not verdict.is_compatible:
            code = EXIT_FAILED
    return code


def _drafts(options: argparse.Namespace) -> list[tuple[str, UnregisteredSchema]]:
    """The subjects and schemas on the command line; all files are read before the first request."""
    kind = None if options.type is None else kind_of(options.type)
    references = tuple(_reference(text) for text in options.reference)
    if options.file is not None:
        found = [(options.subject, Path(options.file))]
    elif Path(options.subject).is_dir():
        found = drafts_of_folder(Path(options.subject))
    else:
        raise UsageError(f"{options.subject} is not a folder: name the subject and the file of its schema")
    return [(subject, read_draft_file(path, kind)._replace(references=references)) for subject, path in found]


def _reference(text: str) -> Reference:
    name, has_name, rest = text.partition("=")
    subject, has_version, version = rest.rpartition(":")
    if not (has_name and has_version and name and subject and version.isdecimal()):
        raise UsageError(f"--reference {text!r} is not of the form NAME=SUBJECT:VERSION")
    return Reference(name, subject, int(version))


def _delete(client: RegistryClient, options: argparse.Namespace) -> int:
    what = options.subject if options.version is None else f"version {options.version} of {options.subject}"
    question = f"Delete {what}{' for ever: records with its ids cannot be read then' if options.permanent else ''}?"
    if not (options.yes or confirm(question)):
        return EXIT_FAILED
    if options.version is None:
        deleted = client.delete_subject(options.subject, permanent=options.permanent)
    else:
        deleted = [client.delete_version(options.subject, options.version, permanent=options.permanent)]
    print_line(f"{options.subject}\t{','.join(map(str, deleted))}")
    return 0


def _config(client: RegistryClient, options: argparse.Namespace) -> int:
    wanted: dict[str, Any] = {name: _value(text) for name, text in parse_pairs(options.set, allow_bare=False).items()}
    if options.level is not None:
        wanted["compatibility"] = options.level
    if options.remove:
        if wanted or options.mode:
            raise UsageError("--remove excludes other changes")
        client.delete_config(options.subject)
    if wanted:
        client.set_config(wanted, options.subject)
    if options.mode:
        client.set_mode(options.mode, options.subject)
    settings = {**client.config(options.subject), "mode": client.mode(options.subject)}
    print_table(("Setting", "Value"), [(name, _shown(value)) for name, value in settings.items()])
    return 0


def _value(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _export(client: RegistryClient, options: argparse.Namespace) -> int:
    count = sum(1 for _ in export_registry(client, Path(options.folder), options.subjects, deleted=options.deleted))
    warn(f"Wrote {_versions_text(count)} to {options.folder}.")
    return 0


def _import(client: RegistryClient, options: argparse.Namespace) -> int:
    stored = read_folder(Path(options.folder))
    count = 0
    for each in import_registry(client, stored):
        print_line(f"{each.subject}\t{each.version}\t{each.schema_id}")
        count += 1
    warn(f"Imported {_versions_text(count)}; {len(stored.versions) - count} already existed.")
    return 0


def _versions_text(count: int) -> str:
    return f"{count} version{'' if count == 1 else 's'}"
