"""Random recurrences and layers, to compare every backend with the definition."""

import functools

import pytest
import torch

from ordered_memory import OrderedMemory, OrderedMemoryState
from ordered_memory.backends import BACKENDS, Backend, sequence
from ordered_memory.memory import initial_state, run_recurrence
from ordered_memory.recurrence import DropoutSampler
from tests.small_memory import F64
from tests.tolerances import assert_close

EVERY_SLOT = "sequence, every slot"  # the layout for devices other than a CPU
TESTED = {name: backend for name, backend in BACKENDS.items() if name not in ("reference", "triton")}
TESTED[EVERY_SLOT] = Backend(functools.partial(sequence.run_recurrence, active_only=False), sequence.why_not)
EVERY_BACKEND = pytest.mark.parametrize("backend", TESTED)
ANY_BACKEND = pytest.mark.parametrize("backend", [*TESTED, "reference"])
RESULTS = ("output", "attention", "memory", "candidate", "occupancy")


def randomize(layer, std=0.6):
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return layer


def arbitrary_state(batch, slots, size, dtype=F64):
    """Anything at all; among the occupancies zeros, some too small to count and an empty memory."""
    occupancy = torch.rand(batch, slots + 1, dtype=dtype)
    kinds = torch.randint(6, occupancy.shape)
    occupancy[kinds == 0] = 0
    occupancy[kinds == 1] = 1e-7
    occupancy[0] = occupancy[0].sort().values
    if batch > 2:
        occupancy[1] = 0
    memory, candidate = torch.randn(2, batch, slots, size, dtype=dtype)
    return OrderedMemoryState(memory, candidate, occupancy)


class Case:
    """Random weights, tokens, state, dropout masks and upstream gradients of one recurrence."""

    def __init__(
        self,
        steps=5,
        batch=3,
        slots=4,
        size=4,
        lengths=None,
        start="arbitrary",
        dtype=F64,
        std=0.6,
        **arguments,
    ):
        layer = randomize(OrderedMemory(size, size, slots, dtype=dtype, **arguments), std)
        direction = layer.directions[0]
        self.modules = direction.recurrent_modules()
        named = direction.named_parameters()
        self.weights = {name: weight for name, weight in named if not name.startswith("projection")}
        self.inputs = torch.randn(steps, batch, size, dtype=dtype)
        self.lengths = None if lengths is None else torch.tensor(lengths)
        if start == "arbitrary":
            self.state = arbitrary_state(batch, slots, size, dtype)
        else:
            self.state = initial_state(batch, slots, self.inputs[0])
        if start == "carried":
            with torch.no_grad():
                self.state = run_recurrence(torch.randn_like(self.inputs), self.state, self.modules).state
        draw = direction.dropout_sampler(self.inputs[0], slots)
        self.masks = [draw(t) for t in range(steps)] if draw else None
        shapes = (self.inputs.shape, (steps, batch, slots), *(tensor.shape for tensor in self.state))
        self.upstream = {
            name: torch.randn(shape, dtype=dtype) for name, shape in zip(RESULTS, shapes, strict=True)
        }

    @property
    def drawer(self):
        return DropoutSampler(self.modules, self.inputs[0], self.state.memory.shape[1])

    def results(self, function, inputs=None, state=None):
        """What `function` computes, by name."""
        inputs, state = self.inputs if inputs is None else inputs, state or self.state
        result = function(inputs, state, self.modules, self.lengths, self.masks)
        return dict(zip(RESULTS, (result.output, result.attention, *result.state), strict=True))

    def leaves(self):
        """The tensors that gradients are wanted of, by name; the state's and the inputs' are copies."""
        own = {"inputs": self.inputs} | self.state._asdict()
        return {name: tensor.clone().requires_grad_() for name, tensor in own.items()} | self.weights

    def run(self, function):
        """Results and gradients, by name."""
        leaves = self.leaves()
        state = OrderedMemoryState(*(leaves[name] for name in OrderedMemoryState._fields))
        results = self.results(function, leaves["inputs"], state)
        return results | gradients(results, self.upstream, leaves)

    def backend(self, name):
        """The backend's function; skips the test where it cannot run."""
        skip_unless_it_runs(name, self.inputs, self.modules)
        return BACKENDS[name].run_recurrence


def gradients(results, upstream, leaves):
    """Gradients of Σ result · upstream over the results that have an upstream."""
    loss = sum((results[name] * gradient).sum() for name, gradient in upstream.items())
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": gradient for name, gradient in zip(leaves, found, strict=True)}


def skip_unless_it_runs(backend, inputs, modules):
    reason = BACKENDS[backend].why_not(inputs, modules)
    if reason is not None:
        pytest.skip(reason)


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, name)


def assert_equals_the_definition(backend, case):
    actual, expected = case.run(case.backend(backend)), case.run(run_recurrence)
    # Rounding errors of a score are divided by the occupancy that it was weighted with, down to 1e-7.
    tiny = (case.state.occupancy > 0) & (case.state.occupancy < 1e-5)
    for found in (actual, expected):
        found["gradient of occupancy"] *= torch.where(tiny, case.state.occupancy / 1e-5, 1.0)
    assert_same(actual, expected)
    for b, length in enumerate([] if case.lengths is None else case.lengths.tolist()):
        assert (actual["output"][length:, b] == 0).all()
        assert (actual["attention"][length:, b] == 0).all()
        assert (actual["gradient of inputs"][length:, b] == 0).all()
        if length == 0:
            assert all(torch.equal(actual[name][b], old[b]) for name, old in case.state._asdict().items())


def make(backend, dtype=F64, std=0.6, **arguments):
    """A layer that runs on the backend, and one with the same weights that runs on the definition."""
    arguments = {"batch_first": True, "dtype": dtype, **arguments}
    layer = randomize(OrderedMemory(3, 6, 5, backend=backend, **arguments), std)
    skip_unless_it_runs(backend, torch.zeros(1, 1, 6, dtype=dtype), layer.directions[0].recurrent_modules())
    definition = OrderedMemory(3, 6, 5, backend="reference", **arguments)
    definition.load_state_dict(layer.state_dict())
    return layer, definition


def run_layer(layer, x, *arguments, upstream=None, **named):
    """Results and gradients, by name; upstream gradients are the same for every layer."""
    x = x.clone().requires_grad_()
    out = layer(x, *arguments, **named)
    results = dict(zip(RESULTS, (out.output, out.attention, *out.state), strict=True))
    generator = torch.Generator().manual_seed(3)
    upstream = {n: torch.randn(r.shape, generator=generator, dtype=r.dtype) for n, r in results.items()}
    return results | gradients(results, upstream, {"x": x} | dict(layer.named_parameters()))
