"""Many pairs: finding and naming them, and matching them one after the other without waiting."""
