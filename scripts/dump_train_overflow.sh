#!/usr/bin/env bash
# Train LeNet in float16 with a loss scale that is too large at first and shrinks until no operator overflows.
# Dump the operators that overflow and list them:
#
#     bash scripts/dump_train_overflow.sh [FOLDER]
#
# The dump of about 10 MB goes to FOLDER (default: a new folder below out/).
# Environment variables: JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (8), BATCH (32),
# LOSS_SCALE (dynamic:67108864,factor=64,window=4). Only Ascend detects overflows.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend
choose_device

folder=$(dump_folder lenet_train_overflow "${1:-}")
train_network lenet data_dump_train_overflow.json "$folder" --steps "${STEPS:-8}" --batch "${BATCH:-32}" \
    --precision float16 --loss-scale "${LOSS_SCALE:-dynamic:67108864,factor=64,window=4}" 2>&1
msdump show "$folder/debug_dump"
