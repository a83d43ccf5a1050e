"""ON-LSTM once more, in NumPy, unit by unit, in float64.

Written from the equations alone, without any of the library's code, for the tests to compare with.
"""

from __future__ import annotations

import numpy as np


def run_step(z: np.ndarray, cell: np.ndarray, chunk: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Equations (1)–(5) and (9)–(15), of one token of one sequence.

    Args:
        z: preactivations, (4H + 2M,).
        cell: c of the step before, (H,).
        chunk: C.
    Returns:
        h and c, (H,), and the distances of the forget and of the input gate.
    """
    size = len(cell)
    masters = size // chunk
    sig = 1 / (1 + np.exp(-z))
    exp_f, exp_i = np.exp(z[4 * size : 4 * size + masters]), np.exp(z[4 * size + masters :])
    f_master = [sum(exp_f[: k + 1]) / sum(exp_f) for k in range(masters)]
    i_master = [1 - sum(exp_i[: k + 1]) / sum(exp_i) for k in range(masters)]
    new_h, new_c = np.zeros(size), np.zeros(size)
    for u in range(size):
        f_m, i_m = f_master[u // chunk], i_master[u // chunk]
        w = f_m * i_m
        f_hat, i_hat = sig[size + u] * w + (f_m - w), sig[u] * w + (i_m - w)
        new_c[u] = f_hat * cell[u] + i_hat * np.tanh(z[2 * size + u])
        new_h[u] = sig[3 * size + u] * np.tanh(new_c[u])
    return new_h, new_c, masters - sum(f_master), masters - sum(i_master)


def run_sequence(
    x: np.ndarray,
    weights: tuple[np.ndarray, np.ndarray, np.ndarray],
    h: np.ndarray,
    c: np.ndarray,
    chunk: int,
) -> tuple[np.ndarray, np.ndarray, list[float], list[float]]:
    """One direction over one sequence, (T, I): h of every step, the last c, both distances of every step."""
    w_ih, w_hh, bias = weights
    outputs, forget_distances, input_distances = [], [], []
    for token in x:
        h, c, forget, write = run_step(w_ih @ token + w_hh @ h + bias, c, chunk)
        outputs.append(h)
        forget_distances.append(forget)
        input_distances.append(write)
    return np.array(outputs), c, forget_distances, input_distances
