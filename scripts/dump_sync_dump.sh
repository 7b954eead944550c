#!/usr/bin/env bash
# Run AlexNet on photographs with a synchronous dump, print what was written and read one tensor back:
#
#     bash scripts/dump_sync_dump.sh [FOLDER]
#
# FOLDER is where the dump goes, about 500 MB (a new one below out/ by default).
# DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), DEVICE_ID and STEPS (4) are taken from the
# environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder alexnet "${1:-}")
run_network alexnet data_dump.json "$folder" 4
msdump show "$folder/debug_dump"
