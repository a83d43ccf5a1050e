"""Both layers under DistributedDataParallel and FSDP, in a process group of one process."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from onlstm import ONLSTM
from ordered_memory import OrderedMemory
from tests.small_memory import F64, make
from tests.tolerances import assert_close
from tests.versions import SHARDED_PARTS_AGAIN


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    "layer_of",
    [
        lambda: OrderedMemory(4, 6, 5, bidirectional=True, dtype=F64),
        lambda: ONLSTM(4, 6, 2, chunk_size=2, bidirectional=True, dtype=F64),
    ],
    ids=["OrderedMemory", "ONLSTM"],
)
def test_a_data_parallel_layer_gives_every_gradient_of_the_layer(process_group, layer_of, steps):
    """Of a single token, too, at which the score has nothing to choose from: no parameter is unused."""
    layer = layer_of()
    parallel = DistributedDataParallel(copy.deepcopy(layer))
    for _ in range(2):  # the second call refuses to run if the first one left a parameter unused
        x = torch.randn(steps, 3, 4, dtype=F64)
        for one in (layer, parallel):
            one.zero_grad()
            one(x, lengths=torch.tensor([steps, 1, 1]))[0].sin().sum().backward()
        for found, wanted in zip(parallel.parameters(), layer.parameters(), strict=True):
            assert_close(found.grad, wanted.grad)


@pytest.mark.parametrize(
    "pick",
    [
        lambda layer: [],
        pytest.param(lambda layer: [layer.directions[0].cell.output], marks=SHARDED_PARTS_AGAIN),
    ],
)
def test_fsdp_of_a_layer_that_computes_steps_again(process_group, pick):
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    # FSDP warns of outputs that are views, as they are with batch_first.
    layer, plain = make(recompute_every=2, batch_first=False), make(batch_first=False)
    plain.load_state_dict(layer.state_dict())
    for module in (*pick(layer), layer):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    x = torch.randn(6, 3, 4, dtype=F64)
    for one in (layer, plain):
        one(x).output.sin().sum().backward()
    for sharded, whole in zip(layer.parameters(), plain.parameters(), strict=True):
        assert_close(sharded.grad.full_tensor(), whole.grad)
