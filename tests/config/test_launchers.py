"""Which process this is, as the variables of launchers say."""

import pytest

from msdump.config import Identity, launchers
from msdump.config.launchers import identity
from msdump.errors import InputError

TOLD = {
    "nobody": ({}, Identity()),
    "Open MPI": (
        {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        Identity(5, 8, 1, "Open MPI"),
    ),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, Identity(1, 2, 0, "PMI")),
    "Cray": ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "1"}, Identity(1, 2, 1, "PMI")),
    "PMIx": ({"PMIX_RANK": "3", "PMIX_SIZE": "4", "PMIX_LOCAL_RANK": "1"}, Identity(3, 4, 1, "PMIx")),
    "Slurm": (
        {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "9", "SLURM_LOCALID": "1"},
        Identity(3, 4, 1, "Slurm"),
    ),
    "Slurm job": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Identity(0, 4, 0, "Slurm")),
    "torchrun": ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, Identity(1, 2, 1, "torchrun")),
    "MindSpore": ({"RANK_ID": "9", "RANK_SIZE": "16", "DEVICE_ID": "1"}, Identity(9, 16, 1, "MindSpore")),
    "local rank unknown": ({"RANK_ID": "3", "RANK_SIZE": "4"}, Identity(3, 4, 3, "MindSpore")),
    "rank alone": ({"RANK_ID": "4"}, Identity()),
    "size alone": ({"WORLD_SIZE": "4"}, Identity()),
    "empty": ({"RANK": "", "WORLD_SIZE": ""}, Identity()),
    "one started several": (
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "RANK": "0", "WORLD_SIZE": "2"},
        Identity(0, 2, 0, "torchrun"),
    ),
    "leading zeros": ({"RANK": "01", "WORLD_SIZE": "02"}, Identity(1, 2, 1, "torchrun")),
}


@pytest.fixture(autouse=True)
def launch(monkeypatch):
    """Return a function that sets variables, without the launcher that runs the tests."""
    for launcher in launchers.LAUNCHERS:
        for name in (launcher.rank, *launcher.sizes, *launcher.local_ranks):
            monkeypatch.delenv(name, raising=False)
    launchers._settled.cache_clear()
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


@pytest.mark.parametrize(("variables", "expected"), TOLD.values(), ids=TOLD)
def test_identity_by_launcher(launch, variables, expected):
    """A launcher with rank and number of ranks counts; the first of the table beats the others."""
    launch(variables)

    assert expected == identity()


CONFLICTS = {
    "rank": (
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "RANK_ID": "1", "RANK_SIZE": "2"},
        ["OMPI_COMM_WORLD_RANK = '0' of Open MPI and RANK_ID = '1' of MindSpore"],
    ),
    "rank without size": (
        {"RANK": "1", "WORLD_SIZE": "2", "PMIX_RANK": "x"},
        ["RANK = '1' of torchrun and PMIX_RANK = 'x' of PMIx"],
    ),
    "size": (
        {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
        ["WORLD_SIZE = '2' of torchrun and SLURM_NTASKS = '4' of Slurm"],
    ),
    "none": ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "01", "SLURM_NTASKS": "2"}, []),
}


@pytest.mark.parametrize(("variables", "expected"), CONFLICTS.values(), ids=CONFLICTS)
def test_contradiction_names_both(launch, caplog, variables, expected):
    """Two launchers that disagree are named once, with the variable that holds."""
    launch(variables)

    for _ in range(3):
        identity()

    told = [record.getMessage() for record in caplog.records]
    assert [f"{text} contradict each other; {text.split()[0]} is used" for text in expected] == told


NONSENSE = {
    "no ranks": ({"RANK_ID": "0", "RANK_SIZE": "0"}, "RANK_SIZE = '0': must be a number of processes from 1"),
    "text as size": (
        {"RANK": "0", "WORLD_SIZE": "two"},
        "WORLD_SIZE = 'two': must be a number of processes from 1",
    ),
    "negative size": (
        {"PMI_RANK": "0", "PMI_SIZE": "-2"},
        "PMI_SIZE = '-2': must be a number of processes from 1",
    ),
    "rank beyond": (
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "2"},
        "OMPI_COMM_WORLD_RANK = '2': must be a rank from 0 to 1, since OMPI_COMM_WORLD_SIZE = '2'",
    ),
    "text as rank": (
        {"RANK": "first", "WORLD_SIZE": "2"},
        "RANK = 'first': must be a rank from 0 to 1, since WORLD_SIZE = '2'",
    ),
    "text as local rank": (
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "a"},
        "LOCAL_RANK = 'a': must be a number from 0",
    ),
}


@pytest.mark.parametrize(("variables", "expected"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused(launch, variables, expected):
    """No ranks, a rank that is not among them, and texts are errors that show variable and value."""
    launch(variables)

    with pytest.raises(InputError) as caught:
        identity()

    assert expected == str(caught.value)


def test_ranks_without_size_are_told(launch):
    """A rank without any number of ranks has no effect; with one of another launcher it is compared."""
    launch({"RANK_ID": "4", "PMIX_RANK": "0"})

    assert [("RANK_ID", "4")] == list(launchers.ranks_without_size())

    launch({"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "8"})

    assert [] == list(launchers.ranks_without_size())
