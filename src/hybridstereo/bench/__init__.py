"""`hstereo bench`: what is timed, against whom, and how it is told."""
