#!/usr/bin/env bash
# Train LeNet twice, once with a kernel that is wrong, compare the two dumps, and print the path of a report whose
# first line names that kernel:
#
#     bash scripts/report.sh [FOLDER]
#
# FOLDER is where dumps and report go, about 60 MB (a new one below out/ by default).
# DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), STEPS (4) and BATCH (32) are taken from the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
setup_venv
choose_device

folder=$(dump_folder report "${1:-}")
export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/lenet/data_dump.json
for side in golden faulty; do
    MS_DIAGNOSTIC_DATA_PATH=$folder/$side "$VENV_PYTHON" "$MSDUMP_ROOT/scripts/train_faulty.py" \
        --steps "${STEPS:-4}" --batch "${BATCH:-32}" $([ "$side" = golden ] || echo --faulty) >&2
done

printed=$(msdump report "$folder/faulty/debug_dump" "$folder/golden/debug_dump" -o "$folder/report.html")
headline=${printed%%$'\n'*}
if [[ $headline != *ReluGrad* ]]; then
    echo "report.sh: the first line does not name the kernel that is wrong: $headline" >&2
    exit 1
fi
echo "$headline" >&2
echo "$folder/report.html"
