#!/usr/bin/env bash
# Run the quick tests: scripts/test.sh [PYTEST-ARGUMENT...]. Slow tests: scripts/test.sh -m slow
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv test

cd "$MSDUMP_ROOT"
# Each worker computes with one thread, because all cores have workers; programs of tests use the default. Three workers
# run on two cores, because some tests wait for a process or a limit. With worksteal, neighbouring tests, which share
# fixtures, mostly run in one worker.
export MSDUMP_THREADS=${MSDUMP_THREADS:-1}

# Tests create and remove hundreds of thousands of files, which takes a quarter of the time on a disk. Use memory if it
# is large and allows programs to start.
memory_folder() {
    local folder free_kib
    free_kib=$(df --output=avail /dev/shm 2>/dev/null | tail -1)
    [[ -z ${TMPDIR:-} && ${free_kib:-0} -ge $((4 << 20)) ]] || return 1
    awk '/^MemAvailable:/ { exit $2 < 8 * 2 ^ 20 }' /proc/meminfo || return 1
    folder=$(mktemp -d /dev/shm/msdump-tests.XXXXXX) || return 1
    chmod 755 "$folder" # some tests run as another user
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
    echo "test: files are in $TMPDIR; files of failed tests are kept"
    trap '[[ $? -ne 0 ]] || rm -rf "$TMPDIR"' EXIT
fi
"$VENV_PYTHON" -m pytest -n 3 --dist worksteal -m "not slow and not bench and not browser" "$@"
