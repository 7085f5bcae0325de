"""`hstereo eval --report`: one self-contained HTML page and the same figures as JSON."""
