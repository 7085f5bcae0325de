"""End-to-end training: losses, gradients, optimiser, stages and the run folder."""
