#!/usr/bin/env bash
# Build the files of a release and try them outside of the repository: scripts/test_package.sh. Each file is installed
# into a fresh environment, in which a model is run, dumped, shown and compared; mypy checks a program that uses msdump.
# MSDUMP_PYTHON names another Python for the environment.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
bash "$MSDUMP_ROOT/scripts/package.sh"

dist=$MSDUMP_ROOT/build/dist
work=$(mktemp -d "${TMPDIR:-/tmp}/msdump-package-XXXXXX") # MindSpore refuses paths with dots
trap 'rm -rf "$work"' EXIT
fresh=$work/venv
mkdir "$work/story"
cp "$MSDUMP_ROOT"/graphs/{mini,transformer}.onnx "$MSDUMP_ROOT/scripts/packaging/consumer.py" "$work/story"
"$VENV_PYTHON" "$MSDUMP_ROOT/scripts/packaging/contents.py" "$MSDUMP_ROOT" "$dist"
cd "$work/story" # Python finds msdump in the environment, not in the repository

# Install a file, with its dependencies where they are missing: install FILE-OR-OPTION...
install() {
    "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --constraint "$CONSTRAINTS" "$@" >&2
}

# Run two models, configure their dumps, and show, compare and report them.
run_story() (
    PATH=$fresh/bin:$PATH
    python -m msdump --version
    for model in mini transformer; do
        mkdir "$model" && cd "$model"
        msdump run "../$model.onnx" >/dev/null
        for side in mine golden; do
            mkdir "$side" && cd "$side"
            msdump init --yes >/dev/null
            msdump run "../../$model.onnx" --config data_dump.json --device-target Ascend >/dev/null
            cd ..
        done
        msdump show mine/dump >/dev/null
        msdump compare mine/dump golden/dump >/dev/null
        msdump report mine/dump golden/dump -o report.html >/dev/null
        cd ..
        rm -r "$model"
    done
)

# Try a file: try NAME KERNEL INSTALL-ARGUMENT...; KERNEL is True if the file holds the compiled library
try() {
    install --force-reinstall --no-deps "${@:3}"
    "$fresh/bin/python" -c "from msdump.statistics import compiled; assert bool(compiled.KERNEL) is $2, '$1'"
    run_story
    echo "test_package: $1: the models are dumped, shown, compared and reported"
}

"$(find_python)" -m venv "$fresh"
has_library=False
if ls "$dist"/*manylinux*.whl >/dev/null 2>&1; then
    has_library=True
fi
install "$dist"/*-none-any.whl
try "choice of pip" $has_library --no-index --find-links "$dist" msdump
"$fresh/bin/python" -c 'import msdump.testing; msdump.testing.compare' # without pytest
"$VENV/bin/mypy" --strict --config-file= --cache-dir="$work/mypy" --python-executable "$fresh/bin/python" consumer.py
try "pure wheel" False "$dist"/*-none-any.whl
CC=no-compiler try "sdist without a compiler" False "$dist"/*.tar.gz
