#!/usr/bin/env bash
# Run a network under acl's watcher. A kernel of the network writes past its output. The watcher reads the output of
# Softmax from device memory after every other operator. Then find the operator that changed the output:
#
#     bash scripts/dump_watcher.sh [FOLDER]
#
# The dump of 9 KB goes to FOLDER/output (default: a new folder below out/). Environment variable: STEPS (2).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

folder=$(dump_folder watcher "${1:-}")
run_acl stomp acl_watcher.json "$folder"
(cd output && find . -type f | sort -t. -k6)
echo
"$VENV_PYTHON" "$MSDUMP_ROOT/scripts/compare_watched.py" output
