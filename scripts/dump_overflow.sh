#!/usr/bin/env bash
# Run a network that overflows in float16, dump the operators that do, print them and read one tensor back;
# then run it in bfloat16, where none does:
#
#     bash scripts/dump_overflow.sh [FOLDER]
#
# FOLDER is where the dumps go, less than 100 KB (a new one below out/ by default).
# JIT_LEVEL (O0, O1), MS_ASCEND_CHECK_OVERFLOW_MODE (INFNAN_MODE, SATURATION_MODE), DEVICE_ID and STEPS (2)
# are taken from the environment; the device is always Ascend, the only one that detects overflows.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv

export DEVICE_TARGET=Ascend
export JIT_LEVEL=${JIT_LEVEL:-O0}

folder=$(dump_folder overflow "${1:-}")

# Run the network: run_network FOLDER CONFIGURATION
run_network() {
    export MS_DIAGNOSTIC_DATA_PATH=$1
    export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/overflow/$2
    echo "JIT_LEVEL=$JIT_LEVEL MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
    "$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/overflow/run.py" --steps "${STEPS:-2}" 2>&1
    echo
}

# Tell how many tensors a dump holds: count_tensors FOLDER
count_tensors() {
    find "$1" -name "*.npy" | wc -l
}

run_network "$folder/float16" data_dump.json
"$VENV_PYTHON" -m msdump show "$folder/float16/debug_dump"
echo

run_network "$folder/bfloat16" data_dump_bfloat16.json
echo "float16: $(count_tensors "$folder/float16") tensors of overflowing operators," \
    "bfloat16: $(count_tensors "$folder/bfloat16")"
