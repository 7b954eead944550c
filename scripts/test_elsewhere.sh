#!/usr/bin/env bash
# Run tests in environments besides .venv, each in its own folder, and print the environments that are missing:
#
#     bash scripts/test_elsewhere.sh [torch] [pythons] [lowest]
#
# torch: the torchair door, modules as golden and the gradients of training, with PyTorch. If PyTorch cannot be installed, the script fails
#     if CI is set and prints a line otherwise.
# pythons: the quick tests with every other supported Python on this machine.
# lowest: the quick tests with the lowest versions in pyproject.toml.
# Without an argument, all three run.
set -euo pipefail

SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$SCRIPTS/.."
unset MSDUMP_VENV MSDUMP_CONSTRAINTS # settings of .venv itself

PYTHONS=$(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml)
QUICK=(
    tests/capture tests/config tests/encode tests/execute tests/graph tests/test_public_api.py
    tests/communication tests/dump/test_golden.py tests/dump/test_modes.py tests/dump/test_o0_keys.py
    tests/dump/test_processes.py tests/training/test_goldens.py tests/training/test_dense.py
)

# Older versions of onnxruntime abort when this test runs a whole model of strings.
ABORTS="tests/execute/test_control.py::test_values_are_those_of_the_whole[text]"

# Run pytest in an environment: run_tests VENV ARGUMENT...
run_tests() {
    "$1/bin/python" -m pytest -q -n 2 -m "not slow and not bench" "${@:2}"
}

# Run a demonstration and the quick tests in a finished environment: quick_tests VENV [ARGUMENT...]
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
    run_tests .venv-torch tests/frontends/torchair tests/judge/torch tests/training/test_torch_*.py
}

# Print the path of a version of Python, nothing if it is missing: find_version 3.12
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
            echo "test_elsewhere: Python $version is the Python of .venv"
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
for name in "$@"; do
    case $name in
    torch | pythons | lowest) "test_$name" ;;
    *)
        echo "test_elsewhere: '$name': must be torch, pythons or lowest" >&2
        exit 2
        ;;
    esac
done
