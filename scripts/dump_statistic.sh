#!/usr/bin/env bash
# Dump the statistics of every tensor of AlexNet on photographs, list the files and print the first rows:
#
#     bash scripts/dump_statistic.sh [FOLDER]
#
# The dump of less than 100 KB goes to FOLDER (default: a new folder below out/).
# Environment variables: DEVICE_TARGET (Ascend, GPU; CPU has no statistics), JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (4).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder statistic "${1:-}")
run_network alexnet data_dump_statistic.json "$folder" 4
msdump show "$folder/debug_dump"
