#!/usr/bin/env bash
# Dump a PyTorch network on handwritten digits with torch.compile and msdump's backend: one file per operator. Convert
# the files to arrays, list the files and read one tensor:
#
#     bash scripts/dump_torchair.sh [FOLDER]
#
# The dump of 0.1 MB goes to FOLDER (default: a new folder below out/). The script installs PyTorch into .venv: some
# hundred MB, or some GB if pip finds only the build for CUDA. Environment variable: STEPS (2).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/demonstration.sh"
if ! bash "$MSDUMP_ROOT/scripts/setup.sh" +torch; then
    echo "dump_torchair: PyTorch cannot be installed into .venv; the other demonstrations run without it" >&2
    exit 1
fi

folder=$(dump_folder torchair "${1:-}")
mkdir -p "$folder/output"
cd "$folder"

echo 'torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))'
"$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/torchair_mlp/run.py" --dump --dump-path output --steps "${STEPS:-2}"
echo
msdump convert output -out converted
echo
msdump show "$folder"
