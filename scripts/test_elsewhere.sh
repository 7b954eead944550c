#!/usr/bin/env bash
# Run tests in environments beside .venv, each in a folder of its own, and name what is not there to be tested:
#
#     bash scripts/test_elsewhere.sh [torch] [pythons] [lowest]
#
# torch: the torchair door and the gradients of training, with PyTorch; where it cannot be installed, that fails if CI
# is set and is told otherwise.
# pythons: the quick tests with every other Python that msdump promises and the machine has.
# lowest: the quick tests with the lowest versions that pyproject.toml promises.
# Without an argument: all of them.
set -euo pipefail

SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$SCRIPTS/.."
unset MSDUMP_VENV MSDUMP_CONSTRAINTS # what .venv itself is made with

PYTHONS=$(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml)
QUICK=(
    tests/capture tests/config tests/encode tests/execute tests/graph tests/test_public_api.py
    tests/communication tests/dump/test_golden.py tests/dump/test_modes.py tests/dump/test_o0_keys.py
    tests/dump/test_processes.py tests/training/test_goldens.py tests/training/test_dense.py
)

# Older versions of onnxruntime abort where this test runs a whole model of texts in them, to compare with.
ABORTS="tests/execute/test_control.py::test_values_are_those_of_the_whole[text]"

# Run pytest in an environment: run_tests VENV ARGUMENT...
run_tests() {
    "$1/bin/python" -m pytest -q -n 2 -m "not slow and not bench" "${@:2}"
}

# Run a demonstration and the quick tests in an environment that is set up: quick_tests VENV [ARGUMENT...]
quick_tests() {
    MSDUMP_VENV=$1 bash "$SCRIPTS/dump_overflow.sh" >/dev/null
    run_tests "$1" "${QUICK[@]}" "${@:2}"
}

test_torch() {
    if ! MSDUMP_VENV=.venv-torch bash "$SCRIPTS/setup.sh" test +torch; then
        echo "test_elsewhere: PyTorch cannot be installed: the torchair door is not tested" >&2
        [ -z "${CI:-}" ]
        return
    fi
    run_tests .venv-torch tests/frontends/torchair tests/training/test_torch_*.py
}

# Print the program of a version of Python, nothing where there is none: find_version 3.12
find_version() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c '' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

test_pythons() {
    local main version program
    bash "$SCRIPTS/setup.sh" test
    main=$(.venv/bin/python -c 'import sys; print("{}.{}".format(*sys.version_info))')
    for version in $PYTHONS; do
        program=$(find_version "$version")
        if [ "$version" = "$main" ]; then
            echo "test_elsewhere: Python $version is the one of .venv"
        elif [ -z "$program" ]; then
            echo "test_elsewhere: Python $version is not on this machine: not tested"
        else
            echo "test_elsewhere: Python $version"
            MSDUMP_VENV=.venv-$version MSDUMP_PYTHON=$program bash "$SCRIPTS/setup.sh" test
            quick_tests ".venv-$version"
        fi
    done
}

test_lowest() (
    bash "$SCRIPTS/setup.sh" test
    mkdir -p build
    .venv/bin/python "$SCRIPTS/lowest.py" >build/lowest.txt
    export MSDUMP_CONSTRAINTS=$PWD/build/lowest.txt
    MSDUMP_VENV=.venv-lowest bash "$SCRIPTS/setup.sh" test
    quick_tests .venv-lowest --deselect "$ABORTS"
)

[ $# -gt 0 ] || set -- torch pythons lowest
for what in "$@"; do
    case $what in
    torch | pythons | lowest) "test_$what" ;;
    *)
        echo "test_elsewhere: '$what': must be torch, pythons or lowest" >&2
        exit 2
        ;;
    esac
done
