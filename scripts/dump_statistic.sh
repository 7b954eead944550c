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

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv

export DEVICE_TARGET=${DEVICE_TARGET:-Ascend}
if [ "$DEVICE_TARGET" = Ascend ]; then
    export JIT_LEVEL=${JIT_LEVEL:-O0}
fi

folder=$(dump_folder statistic "${1:-}")
export MS_DIAGNOSTIC_DATA_PATH=$folder
export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/alexnet/data_dump_statistic.json

echo "DEVICE_TARGET=$DEVICE_TARGET JIT_LEVEL=${JIT_LEVEL:-} MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
"$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/alexnet/run.py" --steps "${STEPS:-4}"
echo
"$VENV_PYTHON" -m msdump show "$MS_DIAGNOSTIC_DATA_PATH/debug_dump"
