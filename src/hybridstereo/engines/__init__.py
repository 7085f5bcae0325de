"""Beyond one process: Dask's workers for many tasks, MPI's ranks for one training."""
