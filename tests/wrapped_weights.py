"""A weight that wraps another tensor, as the quantized weights of torchao do."""

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


class Halved(Tensor):
    """A tensor of which half is stored. It takes part in PyTorch's own operations only."""

    @staticmethod
    def __new__(cls, half):
        return Tensor._make_wrapper_subclass(cls, half.shape, dtype=half.dtype, device=half.device)

    def __init__(self, half):
        self.half_of_it = half

    def __tensor_flatten__(self):
        return ["half_of_it"], None

    @staticmethod
    def __tensor_unflatten__(tensors, context, size, stride):
        return Halved(**tensors)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return args[0]
        if function.namespace != "aten":
            raise NotImplementedError(function)
        args, kwargs = tree_map_only(Halved, lambda wrapped: 2 * wrapped.half_of_it, (args, kwargs or {}))
        return function(*args, **kwargs)


def wrap_weight(module, name="weight"):
    """Replace a parameter by a wrapped one of the same value, without gradients."""
    half = module.get_parameter(name).detach() / 2
    module.register_parameter(name, nn.Parameter(Halved(half), requires_grad=False))
