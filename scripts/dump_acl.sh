#!/usr/bin/env bash
# Dump LeNet on handwritten digits from a pyACL program: one file per operator, by acl.json. Convert the files to
# arrays in the host's format, list the files and read one tensor:
#
#     bash scripts/dump_acl.sh [FOLDER]
#
# The dump of 1.4 MB goes to FOLDER/output (default: a new folder below out/). Environment variable: STEPS (2).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

folder=$(dump_folder acl "${1:-}")
run_acl lenet acl.json "$folder"
msdump convert output -out converted -f NCHW
echo
msdump show "$folder"
