#!/usr/bin/env bash
# Run AlexNet on photographs under Ascend O2, which dumps a file for each operator as the device holds it; convert
# the convolution conv3 to the host's format, print what was written and read one tensor back:
#
#     bash scripts/dump_o2_bin.sh [FOLDER]
#
# FOLDER is where the dump goes, about 260 MB (a new one below out/ by default).
# DEVICE_ID and STEPS (4) are taken from the environment; the device is always Ascend, the level O2.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv

export DEVICE_TARGET=Ascend JIT_LEVEL=O2

folder=$(dump_folder o2 "${1:-}")
export MS_DIAGNOSTIC_DATA_PATH=$folder
export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/alexnet/data_dump_o2.json

echo "DEVICE_TARGET=$DEVICE_TARGET JIT_LEVEL=$JIT_LEVEL MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
"$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/alexnet/run.py" --steps "${STEPS:-4}"
echo
files=("$folder"/debug_dump/0/*/*/*/*/*/Conv2D.*conv3-Conv2d*)
"$VENV_PYTHON" -m msdump convert "${files[0]}" -out "$folder/converted" -f NCHW
echo
"$VENV_PYTHON" -m msdump show "$folder"
