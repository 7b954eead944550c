#!/usr/bin/env bash
# Run the tests: scripts/test.sh [PYTEST-ARGUMENT...]. The slow ones run with: scripts/test.sh -m slow
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv test

cd "$MSDUMP_ROOT"
exec "$VENV_PYTHON" -m pytest -n 2 -m "not slow and not bench and not browser" "$@"
