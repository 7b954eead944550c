#!/usr/bin/env bash
# Train LeNet twice, once with a wrong kernel, compare the two dumps, and print the path of a report. The first line
# of the report names the wrong kernel:
#
#     bash scripts/report.sh [FOLDER]
#
# Dumps and report, about 60 MB, go to FOLDER (default: a new folder below out/).
# Environment variables: DEVICE_TARGET (Ascend, CPU, GPU), JIT_LEVEL (O0, O1), STEPS (4), BATCH (32).
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
    echo "report.sh: the first line does not name the wrong kernel: $headline" >&2
    exit 1
fi
echo "$headline" >&2
echo "$folder/report.html"
