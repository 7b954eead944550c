#!/usr/bin/env bash
# Train LeNet on handwritten digits and dump the steps 0, 2 and 3. Print the loss, the files of the backward pass,
# and a weight before and after each dumped step:
#
#     bash scripts/dump_train.sh [FOLDER]
#
# The dump of about 40 MB goes to FOLDER (default: a new folder below out/). Several ranks share every batch, and
# each dumps into its own directory: mpirun -n 2 --allow-run-as-root bash scripts/dump_train.sh
# Environment variables: DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (40), BATCH (32).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder lenet_train "${1:-}")
train_network lenet data_dump.json "$folder" --steps "${STEPS:-40}" --batch "${BATCH:-32}"
"$VENV_PYTHON" "$MSDUMP_ROOT/scripts/show_training.py" "$folder/debug_dump"
