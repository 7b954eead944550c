#!/usr/bin/env bash
# Compile a PyTorch network on handwritten digits with torch.compile and msdump's backend, which dumps a file for
# each operator; convert the files to arrays, print what was written and read one tensor back:
#
#     bash scripts/dump_torchair.sh [FOLDER]
#
# FOLDER is where the dump goes, 0.1 MB (a new one below out/ by default). PyTorch is installed into .venv: some
# hundred MB, or some GB where pip finds only the build for CUDA. STEPS (2) is taken from the environment.
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
