#!/usr/bin/env bash
# Compiles the hot files in place; after a failure the package runs as plain Python.
set -u
python=$1
find src -name '*.so' -delete
if "$python" setup.py -q build_ext --inplace >build-extensions.log 2>&1 && find src -name '*.so' | grep -q .; then
  rm -f build-extensions.log
  echo "hot files compiled"
else
  find src -name '*.so' -delete
  echo "hot files run as plain Python (see build-extensions.log)"
fi
