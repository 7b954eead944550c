#!/usr/bin/env bash
# Functions of the demonstrations, dump_*.sh, which source this file, call setup_venv and run their network.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# Print the absolute path of the folder of a dump, and create the folder: dump_folder NAME [FOLDER]
# The default is a new folder below out/, the same for all ranks of a launcher.
dump_folder() {
    local folder=${2:-}
    if [ -z "$folder" ] && [ -n "${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${SLURM_NTASKS:-${WORLD_SIZE:-}}}}" ]; then
        folder=$MSDUMP_ROOT/out/$1_job_$(launch_number)
    elif [ -z "$folder" ]; then
        mkdir -p "$MSDUMP_ROOT/out" || return
        folder=$(mktemp -d "$MSDUMP_ROOT/out/$1_$(date +%Y%m%d_%H%M%S)_XXXX") || return
    fi
    mkdir -p "$folder" && (cd "$folder" && pwd)
}

# Print a unique name of this launch: the job number, or the launcher's process number and start time.
launch_number() {
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        echo "$SLURM_JOB_ID"
    else
        echo "${PPID}_$(cut -d ' ' -f 22 "/proc/$PPID/stat")"
    fi
}

# Default to Ascend O0 if the environment sets no device or level.
choose_device() {
    export DEVICE_TARGET=${DEVICE_TARGET:-Ascend}
    if [ "$DEVICE_TARGET" = Ascend ]; then
        export JIT_LEVEL=${JIT_LEVEL:-O0}
    fi
}

# Run a network under a configuration in its folder: run_network NETWORK CONFIGURATION FOLDER STEPS
# The dump goes to FOLDER; STEPS is the default of the environment variable STEPS.
run_network() {
    export MS_DIAGNOSTIC_DATA_PATH=$3
    export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/$1/$2
    echo "DEVICE_TARGET=$DEVICE_TARGET JIT_LEVEL=${JIT_LEVEL:-} MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
    "$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/$1/run.py" --steps "${STEPS:-$4}"
    echo
}

# Train a network under a configuration in its folder: train_network NETWORK CONFIGURATION FOLDER [OPTION]...
# The dump goes to FOLDER.
train_network() {
    export MS_DIAGNOSTIC_DATA_PATH=$3
    export MINDSPORE_DUMP_CONFIG=$MSDUMP_ROOT/sample_nets/$1/$2
    echo "DEVICE_TARGET=$DEVICE_TARGET JIT_LEVEL=${JIT_LEVEL:-} MINDSPORE_DUMP_CONFIG=$MINDSPORE_DUMP_CONFIG"
    "$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/$1/train_$1.py" "${@:4}"
    echo
}

# Run a network through pyACL under an acl.json in its folder: run_acl NETWORK CONFIGURATION FOLDER
# The working directory becomes FOLDER, because the path of the dump in the configuration is relative.
run_acl() {
    local config=$MSDUMP_ROOT/sample_nets/$1/$2
    mkdir -p "$3/output"
    cd "$3"
    echo "acl.mdl.set_dump(\"$config\")"
    "$VENV_PYTHON" "$MSDUMP_ROOT/sample_nets/$1/run_acl.py" --config "$config" --steps "${STEPS:-2}"
    echo
}

# Run msdump's command line: msdump COMMAND [ARGUMENT]...
msdump() {
    "$VENV_PYTHON" -m msdump "$@"
}
