"""`ONLSTM.forward(lengths=…)`: padded sequences are read as nn.LSTM reads packed ones."""

import itertools

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from onlstm import ONLSTM
from tests.equality import NAMES
from tests.tolerances import assert_close

F64 = torch.float64
LENGTHS = [3, 5, 1, 3]
GRID = [
    dict(zip(("num_layers", "bidirectional", "batch_first"), values, strict=True))
    for values in itertools.product((1, 2), (False, True), (False, True))
]


def make(**options):
    return ONLSTM(4, 6, **{"chunk_size": 2, "dtype": F64, **options})


def inputs(layer, steps=7, dtype=F64):
    shape = (4, steps, 4) if layer.batch_first else (steps, 4, 4)
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    state = tuple(torch.randn(rows, 4, 6, dtype=dtype, requires_grad=True) for _ in range(2))
    return torch.randn(shape, dtype=dtype, requires_grad=True), state


def flat(output, state, distances):
    return [output, *state, *distances]


def of_packed(layer, x, state, steps):
    """The results of a PackedSequence, padded to `steps` steps."""
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), layer.batch_first, enforce_sorted=False)
    output, state, distances = layer(packed, state, distances=True)
    padded, _ = pad_packed_sequence(output, layer.batch_first, total_length=steps)
    rows = [
        pad_packed_sequence(PackedSequence(one.T, *packed[1:]), layer.batch_first, total_length=steps)[0]
        for one in distances
    ]
    return flat(padded, state, [one.permute(2, 0, 1) for one in rows])


@pytest.mark.parametrize("steps", [5, 7])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("options", GRID, ids=str)
@pytest.mark.parametrize("backend", NAMES)
def test_lengths_equal_a_packed_sequence_with_all_gradients(backend, options, with_state, steps):
    layer = make(backend=backend, **options)
    x, state = inputs(layer, steps)
    expected = of_packed(layer, x, state if with_state else None, steps)
    actual = flat(*layer(x, state if with_state else None, lengths=LENGTHS, distances=True))
    upstream = [torch.randn_like(one) for one in expected]
    wanted = [x, *(state if with_state else ()), *layer.parameters()]
    results = [torch.autograd.grad(one, wanted, upstream) for one in (actual, expected)]
    for one, other in zip((*actual, *results[0]), (*expected, *results[1]), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=str)
@pytest.mark.parametrize("backend", NAMES)
def test_padding_has_no_effect_even_if_it_is_nan(backend, options):
    layer = make(backend=backend, **options)
    x, _ = inputs(layer)
    padding = torch.arange(7).unsqueeze(1) >= torch.tensor(LENGTHS)
    expected = flat(*layer(x, lengths=LENGTHS, distances=True))
    garbage = x.detach().masked_fill(padding.unsqueeze(-1), float("nan")).requires_grad_()
    actual = flat(*layer(garbage, lengths=LENGTHS, distances=True))
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)
    assert (actual[0][padding] == 0).all()
    assert (actual[3][:, padding] == 0).all()
    assert (actual[4][:, padding] == 0).all()
    sum(one.sum() for one in actual).backward()
    assert (garbage.grad[padding] == 0).all()
    assert (garbage.grad[~padding] != 0).any(-1).all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=str)
@pytest.mark.parametrize("backend", NAMES)
def test_a_sequence_without_tokens_keeps_its_state(backend, options):
    layer = make(backend=backend, **options)
    for lengths in ([3, 0, 7, 0], [0, 0, 0, 1], [0, 0, 0, 0]):
        x, state = inputs(layer)
        upstream = [torch.randn_like(one) for one in state]
        ended = [i for i, length in enumerate(lengths) if length == 0]
        output, last, distances = layer(x, state, lengths=lengths, distances=True)
        for one, other in zip(last, state, strict=True):
            assert torch.equal(one[:, ended], other[:, ended])
        assert (output[:, ended] == 0).all()
        assert (torch.stack(distances)[..., ended] == 0).all()
        gradients = torch.autograd.grad(last, (*state, x, *layer.parameters()), upstream)
        for one, other in zip(gradients[:2], upstream, strict=True):
            assert torch.equal(one[:, ended], other[:, ended])
        assert (gradients[2][:, ended] == 0).all()
        running = [i for i, length in enumerate(lengths) if length > 0]
        if running:
            alone = layer(
                x[:, running], tuple(one[:, running] for one in state), lengths=[lengths[i] for i in running]
            )
            assert_close(output[:, running], alone[0])
            assert_close(last[1][:, running], alone[1][1])


@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("backend", NAMES)
def test_chunks_equal_the_whole_in_gradients(backend, with_lengths):
    """The second and the third sequence end in the first chunk, so that their length is 0 in the second."""
    layer = make(num_layers=2, backend=backend)
    x, state = inputs(layer)
    lengths = torch.tensor([7, 2, 3, 5] if with_lengths else [7] * 4)
    parts = lengths.clamp(max=3), (lengths - 3).clamp(min=0)
    given = [{"lengths": part} if with_lengths else {} for part in (lengths, *parts)]
    whole = layer(x, state, distances=True, **given[0])
    first = layer(x[:3], state, distances=True, **given[1])
    second = layer(x[3:], first[1], distances=True, **given[2])
    distances = [torch.cat(pair, dim=1) for pair in zip(first[2], second[2], strict=True)]
    joined = flat(torch.cat([first[0], second[0]]), second[1], distances)
    upstream = [torch.randn_like(one) for one in joined]
    wanted = [x, *state, *layer.parameters()]
    gradients = [torch.autograd.grad(one, wanted, upstream) for one in (joined, flat(*whole))]
    for one, other in zip((*joined, *gradients[0]), (*flat(*whole), *gradients[1]), strict=True):
        assert_close(one, other)


@torch._dynamo.config.patch("capture_dynamic_output_shape_ops", True)
def test_lengths_of_zero_are_compiled():
    torch._dynamo.reset()
    layer = make(num_layers=2, bidirectional=True)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, state = inputs(layer)
    for lengths in (torch.tensor([3, 0, 7, 0]), torch.tensor([0, 2, 0, 0])):
        actual = flat(*compiled(x, state, lengths=lengths, distances=True))
        expected = flat(*layer(x, state, lengths=lengths, distances=True))
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other)
    with pytest.raises(RuntimeError, match=r"in a graph, one length must be above 0"):
        compiled(x, state, lengths=torch.tensor([0, 0, 0, 0]))


def test_full_lengths_and_an_empty_batch_change_nothing():
    layer = make(bidirectional=True)
    x, _ = inputs(layer)
    for one, other in zip(
        flat(*layer(x, lengths=[7] * 4, distances=True)), flat(*layer(x, distances=True)), strict=True
    ):
        assert torch.equal(one, other)
    output, (h_n, _), distances = layer(x[:, :0], lengths=[], distances=True)
    assert (output.shape, h_n.shape, distances.forget.shape) == ((7, 0, 12), (2, 0, 6), (2, 7, 0))


@pytest.mark.parametrize("backend", NAMES)
def test_autocast_gives_the_dtypes_of_an_input_without_padding(backend):
    layer = make(backend=backend, dtype=torch.float32)
    x, _ = inputs(layer, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected = flat(*layer(x, distances=True))
        actual = flat(*layer(x, lengths=LENGTHS, distances=True))
    assert [one.dtype for one in actual] == [one.dtype for one in expected]
    assert actual[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3] * 7, r"for each of 4 sequences, got 7 \(as many as there are steps: check batch_first\)$"),
        (
            [3, 5, 0, 3],
            r"lengths must lie in 1\.\.7 \(T\), got lengths\[2\] = 0 \(0 is allowed with an initial state\)$",
        ),
        (torch.tensor(LENGTHS, device="meta"), r"lengths must be on the CPU"),
    ],
)
def test_bad_lengths_are_named(lengths, message):
    layer = make()
    with pytest.raises(ValueError, match=message):
        layer(inputs(layer)[0], lengths=lengths)


def test_lengths_are_refused_where_there_is_no_padding():
    layer = make()
    with pytest.raises(ValueError, match="PackedSequence, which carries its own"):
        layer(pack_sequence([torch.randn(3, 4, dtype=F64)]), lengths=[3])
    with pytest.raises(ValueError, match="lengths must be None for an input without a batch axis"):
        layer(torch.randn(3, 4, dtype=F64), lengths=[3])


def test_a_state_of_another_batch_size_is_refused_with_lengths():
    layer = make()
    state = (torch.zeros(1, 5, 6, dtype=F64), torch.zeros(1, 5, 6, dtype=F64))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 4, 6\), got \[1, 5, 6\]"):
        layer(inputs(layer)[0], state, lengths=LENGTHS)


# Where the graph breaks, the compiler looks at `.grad` of a tensor that has none.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("fullgraph", [False, True])
@torch._dynamo.config.patch("capture_dynamic_output_shape_ops", False)
def test_compiled_and_eager_agree_for_all_lengths(fullgraph):
    torch._dynamo.reset()
    torch._dynamo.config.capture_dynamic_output_shape_ops = fullgraph
    layer = make(num_layers=2, bidirectional=True, backend="sequence")
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=fullgraph)
    x, state = inputs(layer)
    for lengths in (LENGTHS, [7, 2, 2, 6], [7, 7, 7, 7], [1, 1, 1, 1]):
        actual = flat(*compiled(x, state, lengths=torch.tensor(lengths), distances=True))
        expected = flat(*layer(x, state, lengths=lengths, distances=True))
        upstream = [torch.randn_like(one) for one in expected]
        wanted = [x, *state, *layer.parameters()]
        gradients = [torch.autograd.grad(one, wanted, upstream) for one in (actual, expected)]
        for one, other in zip((*actual, *gradients[0]), (*expected, *gradients[1]), strict=True):
            assert_close(one, other)


def test_compiled_lengths_out_of_range_are_an_error():
    torch._dynamo.reset()
    layer = make(backend="sequence")
    compiled = torch.compile(layer, backend="aot_eager")
    x, _ = inputs(layer)
    with pytest.raises(RuntimeError, match=r"lengths must lie in 1\.\.T"):
        compiled(x, lengths=torch.tensor([8, 1, 1, 1]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_layer_takes_other_lengths():
    layer = make(bidirectional=True).eval()
    x, _ = inputs(layer)

    class OfPadded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, lengths):
            output, state = self.layer(x, lengths=lengths)
            return output, *state

    traced = torch.jit.trace(OfPadded(), (x.detach(), torch.tensor(LENGTHS)))
    for lengths in ([7, 2, 1, 1], [1, 2, 3, 4]):
        output, state = layer(x, lengths=lengths)
        for one, other in zip(traced(x, torch.tensor(lengths)), (output, *state), strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_layer_takes_other_packed_batches(enforce_sorted):
    layer = make(bidirectional=True).eval()

    class OfPacked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, lengths):
            output, state = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted))
            return pad_packed_sequence(output)[0], *state

    traced = torch.jit.trace(OfPacked(), (torch.randn(7, 3, 4, dtype=F64), torch.tensor([7, 4, 3])))
    for lengths in ([4, 2, 2], [6, 6], [5, 4, 3, 2, 1], [3]):
        x, lengths = torch.randn(7, len(lengths), 4, dtype=F64), torch.tensor(lengths)
        for one, other in zip(traced(x, lengths), OfPacked()(x, lengths), strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("lengths", [None, [5, 3, 2, 1], [7, 7, 7, 7]])
@pytest.mark.parametrize("options", GRID, ids=str)
@pytest.mark.parametrize("backend", NAMES)
def test_every_result_may_be_changed_in_place_before_the_backward_pass(backend, options, lengths):
    layer = make(backend=backend, **options)
    x, state = inputs(layer)
    wanted = [x, *state, *layer.parameters()]
    results = flat(*layer(x, state, lengths=lengths, distances=True))
    expected = torch.autograd.grad(sum((2 * one).sum() for one in results), wanted)
    for one in (changed := flat(*layer(x, state, lengths=lengths, distances=True))):
        one.mul_(2)
    actual = torch.autograd.grad(sum(one.sum() for one in changed), wanted)
    assert all(map(torch.equal, actual, expected))
    packed, _ = layer(pack_sequence([x[0, :5], x[1, :2]] if layer.batch_first else [x[:5, 0], x[:2, 1]]))
    packed.data.mul_(2).sum().backward()
