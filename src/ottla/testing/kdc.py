"""A Kerberos realm for tests: a real MIT KDC in a temporary folder, up in a tenth of a second, removed without a trace.

    with Kdc() as kdc:
        service = kdc.keytab("kafka/localhost")
        alice = kdc.keytab("alice")
        subprocess.run(["kinit", "-kt", alice, "alice"], env={**os.environ, **kdc.environment})

It needs the programs of Debian's krb5-kdc and krb5-admin-server.

Rules:
1. Only files in the folder are read or written: `environment` has the variables that a process needs for this realm.
2. The port stays reserved while the KDC is down, so that it returns at the same address with the same principals.
3. The KDC serves TCP on the loopback interface only, and ends with the test run, also when that is killed.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ottla.testing.child import ServerProcess
from ottla.testing.folders import Folder

REALM = "EXAMPLE.COM"
TICKETS = "tickets"
READY = re.compile("commencing operation")
SECONDS_MAX = 20.0
# Directories of server programs, which many users' PATH does not have.
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
INSTALL_COMMAND = "apt-get install krb5-kdc krb5-admin-server"
MASTER_PASSWORD = "of the database, which lives as long as a test"  # noqa: S105

# Host names are used without DNS, which a test does not have. TCP only, because a UDP socket cannot be reserved.
CLIENT_FILE = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  ticket_lifetime = {lifetime}
  renew_lifetime = {lifetime}
  clockskew = 300
  kdc_timesync = 0
[realms]
  {realm} = {{
    kdc = {address}
  }}
[domain_realm]
  localhost = {realm}
"""
SERVER_FILE = """\
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = {address}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/kadm5.acl
    max_life = {lifetime}
    max_renewable_life = 7d
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
  default = FILE:{folder}/tools.log
"""


class KdcError(Exception):
    """The KDC did not do what the test requested; the message ends with its output."""


class Kdc:
    """One realm with its KDC. `lifetime` is that of tickets, in Kerberos' notation (`10h`, `5s`)."""

    def __init__(self, realm: str = REALM, *, lifetime: str = "10h", folder: Path | None = None) -> None:
        self.realm = realm
        self._folder = Folder(folder)
        self.folder = self._folder.path
        self._server = ServerProcess(self.folder / "kdc.log", "the KDC", KdcError)
        words = {
            "realm": realm,
            "address": self._server.reserved_address,
            "folder": self.folder,
            "lifetime": lifetime,
        }
        self.krb5_conf = self.folder / "krb5.conf"
        self.krb5_conf.write_text(CLIENT_FILE.format(**words))
        (self.folder / "kdc.conf").write_text(SERVER_FILE.format(**words))
        (self.folder / "kadm5.acl").touch()
        self._principals: set[str] = set()

    # ---- information

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for this realm: MIT's library reads the first, Java the second."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={self.krb5_conf}",
            "KRB5CCNAME": f"FILE:{self.folder / TICKETS}",
        }

    @property
    def is_running(self) -> bool:
        return self._server.is_running

    @property
    def logs(self) -> str:
        """The KDC's log: each request with its outcome."""
        return self._server.text()

    # ---- principals

    def keytab(self, *principals: str, name: str | None = None, lifetime: str | None = None) -> Path:
        """A keytab with the keys of these principals, which are created if needed; the default name is the first
        principal's.

        Existing keys are unchanged. `lifetime` limits the tickets of new principals (`5 seconds`).
        """
        path = self.folder / f"{name or principals[0].partition('@')[0].replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        for principal in principals:
            self.add(principal, lifetime=lifetime)
            self._run_kadmin(f"ktadd -q -norandkey -k {path} {principal}", expected=path)
        return path

    def add(self, principal: str, password: str | None = None, lifetime: str | None = None) -> None:
        """Add a principal with a password, or with a random key; an existing one is unchanged."""
        if principal in self._principals:
            return
        key = "-randkey" if password is None else f'-pw "{password}"'
        limit = "" if lifetime is None else f'-maxlife "{lifetime}" '
        self._run_kadmin(f"addprinc {limit}{key} {principal}")
        self._principals.add(principal)

    def change_key(self, principal: str) -> None:
        """A new random key with the next number (kvno): older keytabs become invalid."""
        self._run_kadmin(f"change_password -randkey {principal}")

    def remove(self, principal: str) -> None:
        self._run_kadmin(f"delete_principal -force {principal}")
        self._principals.discard(principal)

    def jaas(self, principal: str, keytab: Path | None = None) -> str:
        """The value of `sasl.jaas.config` for a login with a keytab."""
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab or self.keytab(principal)}" principal="{self._qualified(principal)}";'
        )

    def ticket(self, principal: str, cache: Path | None = None, *options: str) -> Path:
        """Get a ticket with kinit, in the cache of `environment` or another one; `options` are arguments of kinit."""
        cache = cache or self.folder / TICKETS
        self._run(["kinit", *options, "-c", f"FILE:{cache}", "-kt", str(self.keytab(principal)), principal])
        return cache

    # ---- start and end

    def start(self) -> Self:
        """Start the KDC; the first start creates its database."""
        if self.is_running:
            return self
        if not (self.folder / "principal").exists():
            self._run(["kdb5_util", "create", "-s", "-r", self.realm, "-P", MASTER_PASSWORD])
        self._server.run(
            [_program("krb5kdc"), "-n", "-r", self.realm, "-P", str(self.folder / "kdc.pid")], self._environment()
        )
        atexit.register(self.stop)
        self._server.wait_for_output(READY, SECONDS_MAX)
        return self

    def stop(self) -> None:
        """Stop the KDC: connections are refused until start()."""
        self._server.kill()
        atexit.unregister(self.stop)

    def close(self) -> None:
        self.stop()
        self._server.close()
        self._folder.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Kdc {self.realm} {self._server.reserved_address} {'running' if self.is_running else 'stopped'}>"

    # ---- internals

    def _qualified(self, principal: str) -> str:
        return principal if "@" in principal else f"{principal}@{self.realm}"

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"), "LC_ALL": "C"}

    def _run_kadmin(self, command: str, expected: Path | None = None) -> None:
        """kadmin.local exits with 0 after errors, so its output is checked."""
        said = self._run(["kadmin.local", "-r", self.realm, "-q", command])
        problems = [line for line in said.splitlines() if " while " in line or line.startswith(("kadmin", "Usage"))]
        if problems or (expected is not None and not expected.exists()):
            raise KdcError(f"{command}: {' '.join(problems) or said}")

    def _run(self, words: Sequence[str]) -> str:
        answer = subprocess.run(  # noqa: S603 (our own command line)
            [_program(words[0]), *words[1:]],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=False,
        )
        said = answer.stdout + answer.stderr
        if answer.returncode:
            raise KdcError(f"{words[0]} ended with exit code {answer.returncode}: {said.strip()}")
        return said


def is_installed() -> bool:
    """Whether this machine has the programs that Kdc needs."""
    return all(_find_program(name) for name in ("krb5kdc", "kdb5_util", "kadmin.local"))


def _program(name: str) -> str:
    found = _find_program(name)
    if found is None:
        raise KdcError(f"there is no program {name} on this machine: {INSTALL_COMMAND}")
    return found


def _find_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PROGRAMS}")
