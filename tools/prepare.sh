#!/usr/bin/env bash
# What a bare Debian machine may lack: venv for Python and a C compiler (optional, for speed); for tests also Java and Maven.
set -u
python=${1:-python3}
purpose=${2:-tests}
missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing+=(python3-dev)
if [ "$purpose" = tests ]; then
  command -v javac >/dev/null || missing+=(openjdk-17-jdk-headless)  # a JDK: the Java client test is compiled as it runs
  command -v mvn >/dev/null || missing+=(maven)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (install them for full speed and for all tests)" >&2
  exit 0
fi
echo "installing ${missing[*]}"
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
