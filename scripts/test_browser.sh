#!/usr/bin/env bash
# Lint the JavaScript of the report page and test the page in Chromium: scripts/test_browser.sh [PYTEST-ARGUMENT...]
# If Chromium is missing, root on Debian installs it; otherwise the tests are skipped.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv test
if ! bash "$MSDUMP_ROOT/scripts/setup.sh" test browser; then
    echo "test_browser: SKIPPED: the packages of the group browser cannot be installed"
    exit 0
fi

cd "$MSDUMP_ROOT"
"$VENV/bin/oxlint" --deny-warnings msdump/look/report/page

# Return whether Chromium is installed.
has_chromium() {
    [ -n "${MSDUMP_CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null
}

if ! has_chromium && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "test_browser: installing chromium" >&2
    (timeout 60 apt-get update && timeout 600 apt-get install -y --no-install-recommends chromium) >/dev/null 2>&1 || true
fi
if ! has_chromium; then
    echo "test_browser: SKIPPED: Chromium is not installed (on Debian: apt-get install chromium)"
    exit 0
fi
exec "$VENV_PYTHON" -m pytest -m browser tests/browser "$@"
