#!/usr/bin/env bash
# Run LeNet on handwritten digits through a pyACL program, which dumps a file for each operator as acl.json says;
# convert the files to arrays of the host's format, print what was written and read one tensor back:
#
#     bash scripts/dump_acl.sh [FOLDER]
#
# FOLDER is where the dump goes, 1.4 MB (a new one below out/ by default). acl.json names it relative to the
# working directory, as "output". STEPS (2) is taken from the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

folder=$(dump_folder acl "${1:-}")
run_acl lenet acl.json "$folder"
msdump convert output -out converted -f NCHW
echo
msdump show "$folder"
