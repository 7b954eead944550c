"""Work on many items as a map over processes of this machine, of a Dask cluster or of MPI."""
