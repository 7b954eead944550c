#!/usr/bin/env bash
# Make .venv with msdump, its sample networks, MPI, tables, SQL, Dask and the versions of requirements.lock:
#
#     bash scripts/setup.sh [GROUP | +EXTRA]...
#
# GROUP is a dependency group of pyproject.toml (test, lint, dev), +EXTRA an extra of msdump (+torch).
# A current .venv is not changed; an unfinished or broken .venv is made again. Other scripts source this file and call
# setup_venv. Environment variables: MSDUMP_VENV (.venv), MSDUMP_PYTHON (the Python of .venv),
# MSDUMP_CONSTRAINTS (requirements.lock).
set -euo pipefail

MSDUMP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV_NAME=${MSDUMP_VENV:-.venv}
VENV=$MSDUMP_ROOT/$VENV_NAME
CONSTRAINTS=${MSDUMP_CONSTRAINTS:-$MSDUMP_ROOT/requirements.lock}
VENV_PYTHON=$VENV/bin/python

# Print the first Python that is new enough.
find_python() {
    local candidate
    for candidate in ${MSDUMP_PYTHON:-python3 python3.11 python3.12 python3.13 python3.14 python}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    candidate=${MSDUMP_PYTHON:-python3}
    echo "setup: Python 3.11 or newer is required, but $candidate is: $("$candidate" --version 2>&1 || true)" >&2
    return 1
}

# Print a key of all inputs of .venv, in one word.
venv_key() {
    # the kernel is compiled, and the version is read, where msdump is installed
    cat "$MSDUMP_ROOT/pyproject.toml" "$CONSTRAINTS" "$MSDUMP_ROOT"/msdump/statistics/kernel/*.[ch] \
        "$MSDUMP_ROOT/scripts/compile_kernel.py" "$MSDUMP_ROOT/msdump/__init__.py" | cksum | tr ' ' '-'
    # An editable installation points to the folder: a moved clone needs a new one.
    echo "$MSDUMP_ROOT"
}

# Return whether a stamp of .venv is current and its Python starts.
is_current() {
    local stamp=$1
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(venv_key)" ] && "$VENV_PYTHON" -c '' 2>/dev/null
}

make_venv() {
    local python
    python=$(find_python)
    echo "setup: making $VENV_NAME with $("$python" --version)" >&2
    if ! "$python" -m venv --clear "$VENV" >&2; then
        echo "setup: $python cannot make a virtual environment; on Debian: apt install python3-venv" >&2
        return 1
    fi
    pip_install --upgrade pip
}

pip_install() {
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check --no-input \
        --constraint "$CONSTRAINTS" "$@" >&2
}

# Make .venv ready: setup_venv [GROUP | +EXTRA]...
setup_venv() {
    local name group stamp extras=samples,mpi,frames,query,cluster options=()
    name=$(IFS=-; echo "ready${*:+-}$*")
    stamp=$VENV/$name
    if is_current "$stamp"; then
        return
    fi
    lock_setup
    if is_current "$stamp"; then
        exec 9>&-
        return
    fi
    if ! is_usable; then
        make_venv
    fi
    for group in "$@"; do
        case $group in
        +*) extras+=,${group#+} ;;
        *) options+=(--group "$MSDUMP_ROOT/pyproject.toml:$group") ;;
        esac
    done
    echo "setup: installing msdump and its dependencies" >&2
    rm -f "$VENV"/ready*
    pip_install --build-constraint "$MSDUMP_ROOT/requirements.lock" \
        --editable "${MSDUMP_ROOT}[$extras]" "${options[@]}"
    venv_key >"$VENV/ready"
    venv_key >"$stamp"
    exec 9>&-
}

# Wait until no other process makes .venv: the ranks of mpirun start at the same time.
lock_setup() {
    exec 9>"${TMPDIR:-/tmp}/msdump-setup-$(printf %s "$VENV" | cksum | tr ' ' '-').lock"
    if command -v flock >/dev/null; then
        flock 9
    fi
}

# Return whether .venv was finished in this folder and has a Python with pip.
is_usable() {
    [ -f "$VENV/ready" ] && [ "$(tail -n 1 "$VENV/ready")" = "$MSDUMP_ROOT" ] &&
        "$VENV_PYTHON" -m pip --version >/dev/null 2>&1
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    if [[ ${1:-} == -* ]]; then
        echo "usage: bash scripts/setup.sh [GROUP | +EXTRA]...  (groups and extras of pyproject.toml)" >&2
        exit 2
    fi
    setup_venv "$@"
fi
