#!/usr/bin/env bash
# Run AlexNet on photographs under Ascend O2, which dumps a file for each operator as the device holds it; convert
# the convolution conv3 to the host's format, print what was written and read one tensor back:
#
#     bash scripts/dump_o2_bin.sh [FOLDER]
#
# FOLDER is where the dump goes, about 260 MB (a new one below out/ by default).
# DEVICE_ID and STEPS (4) are taken from the environment; the device is always Ascend, the level O2.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv

export DEVICE_TARGET=Ascend JIT_LEVEL=O2

folder=$(dump_folder o2 "${1:-}")
run_network alexnet data_dump_o2.json "$folder" 4
files=("$folder"/debug_dump/0/*/*/*/*/*/Conv2D.*conv3-Conv2d*)
msdump convert "${files[0]}" -out "$folder/converted" -f NCHW
echo
msdump show "$folder"
