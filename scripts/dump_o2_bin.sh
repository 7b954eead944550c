#!/usr/bin/env bash
# Dump AlexNet on photographs under Ascend O2: one file per operator in the device's format. Convert the convolution
# conv3 to the host's format, list the files and read one tensor:
#
#     bash scripts/dump_o2_bin.sh [FOLDER]
#
# The dump of about 260 MB goes to FOLDER (default: a new folder below out/).
# Environment variables: DEVICE_ID, STEPS (4).
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
