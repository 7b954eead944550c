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

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

# Tell how many tensors a dump holds: count_tensors FOLDER
count_tensors() {
    find "$1" -name "*.npy" | wc -l
}

folder=$(dump_folder overflow "${1:-}")
run_network overflow data_dump.json "$folder/float16" 2 2>&1
msdump show "$folder/float16/debug_dump"
echo

run_network overflow data_dump_bfloat16.json "$folder/bfloat16" 2 2>&1
echo "float16: $(count_tensors "$folder/float16") tensors of overflowing operators," \
    "bfloat16: $(count_tensors "$folder/bfloat16")"
