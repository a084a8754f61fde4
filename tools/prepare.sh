#!/usr/bin/env bash
# Installs missing Debian packages: venv for Python and a C compiler (optional, for speed); for tests also Java, Maven and a browser.
set -u
python=${1:-python3}
purpose=${2:-tests}
missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing+=(python3-dev)
if [ "$purpose" = tests ]; then
  command -v javac >/dev/null || missing+=(openjdk-17-jdk-headless)  # a JDK: the tests compile the Java client
  command -v mvn >/dev/null || missing+=(maven)
  command -v krb5kdc >/dev/null || [ -x /usr/sbin/krb5kdc ] || missing+=(krb5-kdc)  # Kerberos: one realm for each test
  command -v kadmin.local >/dev/null || [ -x /usr/sbin/kadmin.local ] || missing+=(krb5-admin-server)
  command -v kinit >/dev/null || missing+=(krb5-user)
  command -v krb5-config >/dev/null || missing+=(libkrb5-dev)  # needed to compile the package gssapi
  command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2)  # tests with a lossy network
  command -v faketime >/dev/null || missing+=(faketime)  # tests with clocks that differ
  command -v kcat >/dev/null || missing+=(kcat)
  compgen -G '/usr/lib/*/sasl2/libgssapiv2.so*' >/dev/null || missing+=(libsasl2-modules-gssapi-mit)  # Kerberos logins of kcat
  command -v chromium >/dev/null || missing+=(chromium)  # tests of the console
  [ -e /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc ] || missing+=(fonts-noto-cjk)  # Chinese text in the console
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)  # a reverse proxy of the console
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (install them for full speed and for all tests)" >&2
  exit 0
fi
echo "installing ${missing[*]}"
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
