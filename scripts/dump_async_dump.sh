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

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv

export DEVICE_TARGET=Ascend
export JIT_LEVEL=${JIT_LEVEL:-O0}

folder=$(dump_folder async "${1:-}")
export MS_DIAGNOSTIC_DATA_PATH=$folder
export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/alexnet/data_dump_async.json

echo "DEVICE_TARGET=$DEVICE_TARGET JIT_LEVEL=$JIT_LEVEL MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
"$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/alexnet/run.py" --steps "${STEPS:-4}"
echo
"$VENV_PYTHON" -m msdump show "$MS_DIAGNOSTIC_DATA_PATH/debug_dump"
