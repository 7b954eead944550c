#!/usr/bin/env bash
# Run AlexNet on photographs with an asynchronous dump in the device's formats, print what was written and
# read one tensor back:
#
#     bash scripts/dump_async_dump.sh [FOLDER]
#
# FOLDER is where the dump goes, about 270 MB (a new one below out/ by default).
# JIT_LEVEL (O0, O1), DEVICE_ID and STEPS (4) are taken from the environment; the device is always Ascend,
# the only one that dumps asynchronously.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

folder=$(dump_folder async "${1:-}")
run_network alexnet data_dump_async.json "$folder" 4
msdump show "$folder/debug_dump"
