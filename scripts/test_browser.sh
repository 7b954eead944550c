#!/usr/bin/env bash
# Lint the program of the reports' page, and try the page in a chromium: scripts/test_browser.sh [PYTEST-ARGUMENT...]
# A chromium that is lacking is installed where that can be done (root on Debian); else the tests are skipped.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv test
if ! bash "$MSDUMP_ROOT/scripts/setup.sh" test browser; then
    echo "test_browser: SKIPPED: the packages of the group browser cannot be installed"
    exit 0
fi

cd "$MSDUMP_ROOT"
"$VENV/bin/oxlint" --deny-warnings msdump/analysis/report/page

# Tell whether a chromium is there.
has_chromium() {
    [ -n "${MSDUMP_CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null
}

if ! has_chromium && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "test_browser: installing chromium" >&2
    (timeout 60 apt-get update && timeout 600 apt-get install -y --no-install-recommends chromium) >/dev/null 2>&1 || true
fi
if ! has_chromium; then
    echo "test_browser: SKIPPED: there is no chromium (on Debian: apt-get install chromium)"
    exit 0
fi
exec "$VENV_PYTHON" -m pytest -m browser tests/browser "$@"
