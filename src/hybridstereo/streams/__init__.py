"""Video and live streams: frames of two cameras in, maps as video, raw frames or files out."""
