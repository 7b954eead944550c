#!/usr/bin/env bash
# Write requirements.lock: the versions that pip chooses today for msdump, its samples, MPI and its tools, and the tested
# version of PyTorch (any build).
set -euo pipefail

torch=2.13.0

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(find_python)" -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --upgrade pip

cd "$root"
"$python" -m pip install --quiet --dry-run --ignore-installed --report "$work/packages.json" \
    --editable ".[samples,mpi,frames,query,cluster]" --group dev --group browser \
    pip editables
"$python" - "$work/packages.json" >"$work/requirements.lock" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    packages = [package["metadata"] for package in json.load(file)["install"] if not package["is_direct"]]
print("# Versions of everything that msdump, its samples, tests and tools use; scripts/lock.sh writes this file.")
for package in sorted(packages, key=lambda package: package["name"].lower()):
    print(f"{package['name']}=={package['version']}")
PYTHON
printf '%s\n' "torch==$torch" >>"$work/requirements.lock"
mv "$work/requirements.lock" "$root/requirements.lock"
