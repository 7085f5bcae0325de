"""The report of an evaluation: one self-contained HTML page, and the same figures as JSON."""
