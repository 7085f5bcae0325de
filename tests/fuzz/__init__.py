"""Fuzzing of everything that reads what others wrote, and of the command line.

A target is a function that takes bytes; it may raise a `StereoError`, or nothing.  The default
tests replay the seeds and a few hundred mutations of them; ``python -m tests.fuzz --seconds N
[TARGET ...]`` runs campaigns.
"""
