"""Dense stereo with hybrid CNN-CRF models (Knöbelreiter et al., CVPR 2017)."""

__version__ = "0.1.0"
