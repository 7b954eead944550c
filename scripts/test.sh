#!/usr/bin/env bash
# Run the tests: scripts/test.sh [PYTEST-ARGUMENT...]. The slow ones run with: scripts/test.sh -m slow
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv test
if ! "$VENV_PYTHON" -c 'import importlib.metadata as m; m.version("ai-edge-model-explorer")' 2>/dev/null; then
    # tests build files by its classes; what it depends on, half a gigabyte, they do not need
    pip_install --no-deps ai-edge-model-explorer ||
        echo "test: ai-edge-model-explorer cannot be installed: the tests that read files with it are skipped" >&2
fi

cd "$MSDUMP_ROOT"
exec "$VENV_PYTHON" -m pytest -n 2 -m "not slow and not bench and not browser" "$@"
