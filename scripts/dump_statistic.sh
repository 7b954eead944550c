#!/usr/bin/env bash
# Run AlexNet on photographs, dump the statistics of every tensor instead of the tensors, print what was
# written and the first rows:
#
#     bash scripts/dump_statistic.sh [FOLDER]
#
# FOLDER is where the dump goes, less than 100 KB (a new one below out/ by default).
# DEVICE_TARGET (Ascend, GPU; a CPU has no statistics), JIT_LEVEL (O0, O1), DEVICE_ID and STEPS (4) are
# taken from the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder statistic "${1:-}")
run_network alexnet data_dump_statistic.json "$folder" 4
msdump show "$folder/debug_dump"
