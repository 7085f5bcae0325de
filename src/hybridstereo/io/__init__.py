"""Validated readers and atomic writers: images, disparity maps, model files."""
