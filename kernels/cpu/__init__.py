"""What only the CPU kernels use: loops, vectors, tiles, worker threads and reused memory."""
