"""The elementwise operations of an ON-LSTM step as Triton kernels, forward and backward; see `triton_steps`.

Equations and names are those of `onlstm.functional.step`. H units, M entries of a master gate, C units for
each. BLOCK_MASTER and BLOCK_CHUNK are M and C rounded up to powers of two. All tensors are contiguous. A
program computes one row.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from ordered_memory.backends.triton_jit import jit, tanh, tl


@jit
def forward_kernel(
    preactivations,
    old_cells,
    gates,
    softmax,
    cells,
    output,
    H,
    M,
    C,
    BLOCK_MASTER: tl.constexpr,
    BLOCK_CHUNK: tl.constexpr,
):
    """A forward step, `onlstm.backends.loop.ForwardStep`.

    Args:
        preactivations, old_cells: pre-activations, (rows, 4H + 2M), and c[t-1], (rows, H).
        gates, softmax, cells: written: the fields of `onlstm.backends.loop.Saved`.
        output: written: h, (rows, H).
        H, M, C, BLOCK_MASTER, BLOCK_CHUNK: sizes as above.
    """
    row = tl.program_id(0).to(tl.int64)
    m, c = tl.arange(0, BLOCK_MASTER), tl.arange(0, BLOCK_CHUNK)
    valid_master = m < M
    valid = valid_master[:, None] & (c < C)[None, :]
    u = m[:, None] * C + c[None, :]

    preactivations += row * (4 * H + 2 * M)
    logits = preactivations + 4 * H + m
    softmax_forget = tl.softmax(tl.load(logits, mask=valid_master, other=-float("inf")))
    softmax_input = tl.softmax(tl.load(logits + M, mask=valid_master, other=-float("inf")))
    tl.store(softmax + row * 2 * M + m, softmax_forget, mask=valid_master)
    tl.store(softmax + row * 2 * M + M + m, softmax_input, mask=valid_master)
    f_tilde = tl.cumsum(softmax_forget, 0)[:, None]
    i_tilde = 1 - tl.cumsum(softmax_input, 0)[:, None]
    omega = f_tilde * i_tilde

    i = tl.sigmoid(tl.load(preactivations + u, mask=valid, other=0.0))
    f = tl.sigmoid(tl.load(preactivations + H + u, mask=valid, other=0.0))
    c_hat = tanh(tl.load(preactivations + 2 * H + u, mask=valid, other=0.0))
    o = tl.sigmoid(tl.load(preactivations + 3 * H + u, mask=valid, other=0.0))
    old_cell = tl.load(old_cells + row * H + u, mask=valid, other=0.0)
    f_hat = f * omega + (f_tilde - omega)
    i_hat = i * omega + (i_tilde - omega)
    cell = f_hat * old_cell + i_hat * c_hat

    gates += row * 4 * H
    tl.store(gates + u, i, mask=valid)
    tl.store(gates + H + u, f, mask=valid)
    tl.store(gates + 2 * H + u, c_hat, mask=valid)
    tl.store(gates + 3 * H + u, o, mask=valid)
    tl.store(cells + row * H + u, cell, mask=valid)
    tl.store(output + row * H + u, o * tanh(cell), mask=valid)


@jit
def _cumax_backward(softmax, d_cumax):
    """The gradient of the logits, from that of cumax(logits) = cumsum(softmax(logits))."""
    d_softmax = tl.cumsum(d_cumax, 0, reverse=True)
    return softmax * (d_softmax - tl.sum(softmax * d_softmax, 0))


@jit
def backward_kernel(
    gates,
    softmax,
    cells,
    old_cells,
    d_hidden,
    d_output,
    d_cell,
    d_forget_distance,
    d_input_distance,
    d_preactivations,
    H,
    M,
    C,
    BLOCK_MASTER: tl.constexpr,
    BLOCK_CHUNK: tl.constexpr,
):
    """The backward pass of a step, `onlstm.backends.loop.BackwardStep`.

    Args:
        gates, softmax, cells, old_cells: as in `forward_kernel`.
        d_hidden, d_output, d_cell, d_forget_distance, d_input_distance, d_preactivations: see
            `onlstm.backends.loop.StepGradients`.
        H, M, C, BLOCK_MASTER, BLOCK_CHUNK: sizes as above.
    """
    row = tl.program_id(0).to(tl.int64)
    m, c = tl.arange(0, BLOCK_MASTER), tl.arange(0, BLOCK_CHUNK)
    valid_master = m < M
    valid = valid_master[:, None] & (c < C)[None, :]
    u = m[:, None] * C + c[None, :]

    softmax_forget = tl.load(softmax + row * 2 * M + m, mask=valid_master, other=0.0)
    softmax_input = tl.load(softmax + row * 2 * M + M + m, mask=valid_master, other=0.0)
    f_tilde = tl.cumsum(softmax_forget, 0)[:, None]
    i_tilde = 1 - tl.cumsum(softmax_input, 0)[:, None]
    omega = f_tilde * i_tilde
    gates += row * 4 * H
    i = tl.load(gates + u, mask=valid, other=0.0)
    f = tl.load(gates + H + u, mask=valid, other=0.0)
    c_hat = tl.load(gates + 2 * H + u, mask=valid, other=0.0)
    o = tl.load(gates + 3 * H + u, mask=valid, other=0.0)
    old_cell = tl.load(old_cells + row * H + u, mask=valid, other=0.0)
    tanh_c = tanh(tl.load(cells + row * H + u, mask=valid, other=0.0))

    d_h = tl.load(d_hidden + row * H + u, mask=valid, other=0.0)
    if d_output is not None:
        d_h += tl.load(d_output + row * H + u, mask=valid, other=0.0)
    d_c = tl.load(d_cell + row * H + u, mask=valid, other=0.0) + d_h * o * (1 - tanh_c * tanh_c)
    f_hat = f * omega + (f_tilde - omega)
    i_hat = i * omega + (i_tilde - omega)
    d_f_hat, d_i_hat = d_c * old_cell, d_c * c_hat
    d_preactivations += row * (4 * H + 2 * M)
    tl.store(d_preactivations + u, d_i_hat * omega * i * (1 - i), mask=valid)
    tl.store(d_preactivations + H + u, d_f_hat * omega * f * (1 - f), mask=valid)
    tl.store(d_preactivations + 2 * H + u, d_c * i_hat * (1 - c_hat * c_hat), mask=valid)
    tl.store(d_preactivations + 3 * H + u, d_h * tanh_c * o * (1 - o), mask=valid)
    tl.store(d_cell + row * H + u, d_c * f_hat, mask=valid)

    # Gradients of ω, then of f̃ and ĩ, summed over the units of a chunk.
    d_omega = d_f_hat * (f - 1) + d_i_hat * (i - 1)
    d_f_tilde = tl.sum(d_f_hat + d_omega * i_tilde, 1)
    d_i_tilde = tl.sum(d_i_hat + d_omega * f_tilde, 1)
    if d_forget_distance is not None:
        d_f_tilde -= tl.load(d_forget_distance + row)
    if d_input_distance is not None:
        d_i_tilde -= tl.load(d_input_distance + row)
    d_f_tilde = tl.where(valid_master, d_f_tilde, 0.0)
    d_i_tilde = tl.where(valid_master, d_i_tilde, 0.0)
    logits = d_preactivations + 4 * H + m
    tl.store(logits, _cumax_backward(softmax_forget, d_f_tilde), mask=valid_master)
    tl.store(logits + M, -_cumax_backward(softmax_input, d_i_tilde), mask=valid_master)
