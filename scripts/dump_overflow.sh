#!/usr/bin/env bash
# Dump the operators of a network that overflow in float16, list the files and read one tensor. Then run the network
# in bfloat16, without an overflow:
#
#     bash scripts/dump_overflow.sh [FOLDER]
#
# The dumps of less than 100 KB go to FOLDER (default: a new folder below out/).
# Environment variables: JIT_LEVEL (O0, O1), MS_ASCEND_CHECK_OVERFLOW_MODE (INFNAN_MODE, SATURATION_MODE), DEVICE_ID,
# STEPS (2). Only Ascend detects overflows.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

# Print the number of tensors of a dump: count_tensors FOLDER
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
