"""Models by name: the trained ones (``*.h5``), the hand-set census, the authors' parameters."""
