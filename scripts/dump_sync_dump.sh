#!/usr/bin/env bash
# Dump AlexNet on photographs synchronously, list the files and read one tensor:
#
#     bash scripts/dump_sync_dump.sh [FOLDER]
#
# The dump of about 500 MB goes to FOLDER (default: a new folder below out/).
# Environment variables: DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (4).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder alexnet "${1:-}")
run_network alexnet data_dump.json "$folder" 4
msdump show "$folder/debug_dump"
