"""Benchmark figures: methods to compare, the runner, tables, submission folders, the report."""
