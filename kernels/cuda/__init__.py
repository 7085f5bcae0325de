"""What only the CUDA kernels use; ``cudalib`` is the one file that imports ``numba.cuda``."""
