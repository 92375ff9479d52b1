"""Pictures of digits, drawn rather than downloaded: strokes, moved, tilted, scaled and covered with
noise.
"""

import numpy as np

SIDE = 16  # pixels
CLASSES = 10

# Each digit as lines between points of a 4 × 6 grid.
STROKES = {
    0: [(0, 0, 3, 0), (3, 0, 3, 5), (3, 5, 0, 5), (0, 5, 0, 0)],
    1: [(1, 1, 2, 0), (2, 0, 2, 5)],
    2: [(0, 0, 3, 0), (3, 0, 3, 2), (3, 2, 0, 5), (0, 5, 3, 5)],
    3: [(0, 0, 3, 0), (3, 0, 1, 2), (1, 2, 3, 4), (3, 4, 2, 5), (2, 5, 0, 5)],
    4: [(2, 0, 0, 3), (0, 3, 3, 3), (2, 1, 2, 5)],
    5: [(3, 0, 0, 0), (0, 0, 0, 2), (0, 2, 3, 3), (3, 3, 2, 5), (2, 5, 0, 5)],
    6: [(3, 0, 0, 3), (0, 3, 0, 5), (0, 5, 3, 5), (3, 5, 3, 3), (3, 3, 0, 3)],
    7: [(0, 0, 3, 0), (3, 0, 1, 5)],
    8: [(0, 0, 3, 0), (3, 0, 0, 5), (0, 5, 3, 5), (3, 5, 0, 0)],
    9: [(3, 2, 0, 2), (0, 2, 0, 0), (0, 0, 3, 0), (3, 0, 3, 5)],
}


def points_of(digit: int) -> np.ndarray:
    """Points along the strokes, centred, in a square from -1 to 1."""
    t = np.linspace(0, 1, 12)[:, None]
    lines = [
        np.array([x0, y0]) * (1 - t) + np.array([x1, y1]) * t for x0, y0, x1, y1 in STROKES[digit]
    ]
    return (np.concatenate(lines) - [1.5, 2.5]) / 2.5


def draw(count: int, seed: int, noise: float = 0.45) -> tuple[np.ndarray, np.ndarray]:
    """`count` pictures, flattened, and what they show."""
    rng = np.random.default_rng(seed)
    shapes = [points_of(digit) for digit in range(CLASSES)]
    labels = rng.integers(0, CLASSES, count)
    pictures = rng.normal(0, noise, (count, SIDE, SIDE))
    for picture, label in zip(pictures, labels, strict=True):
        angle, scale = rng.normal(0, 0.22), rng.uniform(0.55, 0.95)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        where = (shapes[label] @ turn * scale + rng.normal(0, 0.12, 2) + 1) / 2 * (SIDE - 1)
        column, row = np.clip(where.round().astype(int), 0, SIDE - 1).T
        picture[row, column] += 1.5
    return pictures.reshape(count, -1).astype(np.float32), labels
