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
# A worker computes with one thread, as the cores are the workers' (programs that tests start use theirs as anywhere);
# there are three on two cores, as some tests wait for a process or a limit. Each begins with a third of the tests and
# then takes from the end of the others': tests that lie together, which share what they build, mostly stay together.
export MSDUMP_THREADS=${MSDUMP_THREADS:-1}

# Tests make files by the hundred thousand and remove them again, which a disk's file system takes a fourth of the whole
# time for. Memory does not; it is taken where it is large, and where programs may start from it.
memory_folder() {
    local folder free_kib
    free_kib=$(df --output=avail /dev/shm 2>/dev/null | tail -1)
    [[ -z ${TMPDIR:-} && ${free_kib:-0} -ge $((4 << 20)) ]] || return 1
    awk '/^MemAvailable:/ { exit $2 < 8 * 2 ^ 20 }' /proc/meminfo || return 1
    folder=$(mktemp -d /dev/shm/msdump-tests.XXXXXX) || return 1
    chmod 755 "$folder" # tests become other users, who go through it
    printf '#!/bin/sh\n' >"$folder/program"
    chmod +x "$folder/program"
    if "$folder/program" 2>/dev/null; then
        rm "$folder/program"
        echo "$folder"
    else
        rm -r "$folder"
        return 1
    fi
}

if folder=$(memory_folder); then
    export TMPDIR=$folder
    echo "test: files lie in $TMPDIR; what failed tests have made stays there"
    trap '[[ $? -ne 0 ]] || rm -rf "$TMPDIR"' EXIT
fi
"$VENV_PYTHON" -m pytest -n 3 --dist worksteal -m "not slow and not bench and not browser" "$@"
