#!/usr/bin/env bash
# Run a network with a kernel that writes past its output, under acl's watcher: the output of its Softmax is read
# again from device memory after every other operator. Then find the operator after which it is another one:
#
#     bash scripts/dump_watcher.sh [FOLDER]
#
# FOLDER is where the dump goes, 9 KB (a new one below out/ by default). acl_watcher.json names it relative to the
# working directory, as "output". STEPS (2) is taken from the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

folder=$(dump_folder watcher "${1:-}")
run_acl stomp acl_watcher.json "$folder"
(cd output && find . -type f | sort -t. -k6)
echo
"$VENV_PYTHON" "$MSDUMP_ROOT/scripts/compare_watched.py" output
