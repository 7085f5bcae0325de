"""The exit codes of `hstereo`."""

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
"""Some images of many failed; the results of the others were printed."""
EXIT_INTERRUPTED = 130
EXIT_SIGNALLED = 128
"""Plus the number of the signal that ended `train`, as shells count."""
