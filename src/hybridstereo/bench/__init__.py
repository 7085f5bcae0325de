"""`hstereo bench`: what is timed, what it is compared with, and how it is reported."""
