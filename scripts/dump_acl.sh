#!/usr/bin/env bash
# Run LeNet on handwritten digits through a pyACL program, which dumps a file for each operator as acl.json says;
# convert the files to arrays of the host's format, print what was written and read one tensor back:
#
#     bash scripts/dump_acl.sh [FOLDER]
#
# FOLDER is where the dump goes, 1.4 MB (a new one below out/ by default). acl.json names it relative to the
# working directory, as "output". STEPS (2) is taken from the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv

folder=$(dump_folder acl "${1:-}")
mkdir -p "$folder/output"
cd "$folder"

config=$MSDUMP_ROOT/sample_nets/lenet/acl.json
echo "acl.mdl.set_dump(\"$config\")"
"$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/lenet/run_acl.py" --config "$config" --steps "${STEPS:-2}"
echo
"$VENV_PYTHON" -m msdump convert output -out converted -f NCHW
echo
"$VENV_PYTHON" -m msdump show "$folder"
