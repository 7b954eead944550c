#!/usr/bin/env bash
# Train LeNet in float16 with a loss scale that overflows in its first steps and shrinks until it does not;
# dump the operators that overflow and print which those are:
#
#     bash scripts/dump_train_overflow.sh [FOLDER]
#
# FOLDER is where the dump goes, about 10 MB (a new one below out/ by default).
# JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (8), BATCH (32) and LOSS_SCALE (dynamic:67108864,factor=64,window=4) are
# taken from the environment; the device is always Ascend, the only one that detects overflows.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

folder=$(dump_folder lenet_train_overflow "${1:-}")
train_network lenet data_dump_train_overflow.json "$folder" --steps "${STEPS:-8}" --batch "${BATCH:-32}" \
    --precision float16 --loss-scale "${LOSS_SCALE:-dynamic:67108864,factor=64,window=4}" 2>&1
msdump show "$folder/debug_dump"
