from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hybridstereo.synthetic.patterns import fractal_noise, plain_tile, random_tile
from hybridstereo.synthetic.textures import Texture, lookup


def test_lookup_is_bilinear(rng):
    image = rng.uniform(size=(9, 11, 3)).astype(np.float32)
    x, y = rng.integers(0, 10 * 32, 5000) / 32, rng.integers(0, 8 * 32, 5000) / 32
    i, j = y.astype(int), x.astype(int)
    s, t = (y - i)[:, None], (x - j)[:, None]
    expected = (1 - s) * ((1 - t) * image[i, j] + t * image[i, j + 1]) + s * (
        (1 - t) * image[i + 1, j] + t * image[i + 1, j + 1]
    )
    np.testing.assert_allclose(lookup(image, x, y), expected, atol=1e-6)


@pytest.mark.parametrize("wall", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_tiles_have_no_seam(seed, wall):
    tile = random_tile(np.random.default_rng(seed), 64, wall)
    assert tile.shape == (64, 64, 3)
    assert tile.dtype == np.float32
    assert 0.0 < tile.min() < tile.max() <= 1.0
    texture = Texture(seed, 64, wall)
    x = np.arange(64, dtype=np.float32)
    once, again = (texture.sample(x + turn, x, np.ones_like(x)) for turn in (0, 64))
    np.testing.assert_array_equal(once, again)


def test_plain_tiles_are_nearly_plain():
    tiles = [plain_tile(np.random.default_rng(seed), 64) for seed in range(12)]
    for seed, tile in enumerate(tiles):
        assert tile.shape == (64, 64, 3)
        assert tile.dtype == np.float32
        spread = (tile / tile.mean(axis=(0, 1))).std(axis=(0, 1))
        assert (spread > 0.003).all()
        assert (spread < 0.08).all()
        sampled = Texture(seed, 64, plain=True).sample(*3 * [np.ones(1, np.float32)])
        np.testing.assert_allclose(sampled[0], tile[1, 1], atol=1e-6)
    assert np.ptp([tile.mean() for tile in tiles]) > 0.2


def test_texture_averages_over_its_footprint():
    texture = Texture(3, 64)
    x, y = (axis.ravel().astype(np.float32) for axis in np.meshgrid(np.arange(64), np.arange(64)))
    spread = [
        texture.sample(x, y, np.full_like(x, footprint)).std() for footprint in (1, 2, 3, 8, 1000)
    ]
    assert all(wide < narrow for narrow, wide in pairwise(spread))


def test_smaller_versions_of_a_texture_are_not_shifted():
    texture = Texture(3, 64)
    tile = random_tile(np.random.default_rng(3), 64)
    blocks = tile.reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
    between = np.arange(32) * 2 + 0.5
    x, y = (axis.ravel() for axis in np.meshgrid(between, between))
    averaged = texture.sample(x, y, np.full(x.shape, 2.0))
    np.testing.assert_allclose(averaged, blocks.reshape(-1, 3), atol=1e-5)


def test_fractal_noise_has_the_spectrum_asked_for(rng):
    noise = fractal_noise(rng, 128, slope=1.0)
    assert abs(noise.mean()) < 1e-5
    assert noise.std() == pytest.approx(1.0, abs=1e-5)
    amplitude = np.abs(np.fft.rfft2(noise))
    frequency = np.hypot(np.fft.fftfreq(128)[:, None], np.fft.rfftfreq(128))
    low = amplitude[(frequency > 0.04) & (frequency < 0.06)].mean()
    high = amplitude[(frequency > 0.36) & (frequency < 0.44)].mean()
    assert low / high == pytest.approx(8.0, rel=0.25)
