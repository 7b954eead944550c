#!/usr/bin/env bash
# Dump AlexNet on photographs asynchronously in the device's formats, list the files and read one tensor:
#
#     bash scripts/dump_async_dump.sh [FOLDER]
#
# The dump of about 270 MB goes to FOLDER (default: a new folder below out/).
# Environment variables: JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (4). Only Ascend dumps asynchronously.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

folder=$(dump_folder async "${1:-}")
run_network alexnet data_dump_async.json "$folder" 4
msdump show "$folder/debug_dump"
