#!/usr/bin/env bash
# Build the files of a release into build/dist: the sdist, the pure wheel and, on Linux, the wheel with the compiled
# statistics library. Both wheels are built from the sdist. The same source, compiler and packages give the same bytes.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_venv dev

dist=$MSDUMP_ROOT/build/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1580601600 # hatchling's default

# Build a file from a source tree: build ROOT FOLDER KIND
build() {
    (cd "$1" && "$VENV_PYTHON" -m hatchling build --directory "$2" --target "$3") >/dev/null
}

rm -rf "$dist"
build "$MSDUMP_ROOT" "$dist" sdist
mkdir "$work/source"
tar -xf "$dist"/*.tar.gz -C "$work/source" --strip-components 1
MSDUMP_KERNEL=0 build "$work/source" "$dist" wheel
build "$work/source" "$work/compiled" wheel

# auditwheel checks that the library runs with glibc 2.17, and renames the wheel.
compiled=("$work"/compiled/*-linux_*.whl)
if [ -f "${compiled[0]}" ]; then
    PATH=$VENV/bin:$PATH "$VENV/bin/auditwheel" repair --plat "manylinux_2_17_$(uname -m)" --wheel-dir "$dist" \
        "${compiled[0]}" 2>"$work/auditwheel.log" || { cat "$work/auditwheel.log" >&2; exit 1; }
else
    echo "package: no wheel with the compiled library: it needs Linux and a C compiler" >&2
fi
(cd "$dist" && sha256sum -- *)
