#!/usr/bin/env bash
# Train LeNet on handwritten digits with a dump of the steps 0, 2 and 3; print the falling loss, the files of the
# backward pass, and a weight before and after each dumped step:
#
#     bash scripts/dump_train.sh [FOLDER]
#
# FOLDER is where the dump goes, about 40 MB (a new one below out/ by default). Ranks train together, each with a
# part of every batch, and each dumps into its directory: mpirun -n 2 --allow-run-as-root bash scripts/dump_train.sh
# DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), DEVICE_ID, STEPS (40) and BATCH (32) are taken from
# the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder lenet_train "${1:-}")
train_network lenet data_dump.json "$folder" --steps "${STEPS:-40}" --batch "${BATCH:-32}"
"$VENV_PYTHON" "$MSDUMP_ROOT/scripts/show_training.py" "$folder/debug_dump"
