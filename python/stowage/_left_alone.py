"""Keeps a model as it is while its step is recorded: tensors that stand in for its own, and what is taken back afterwards."""

from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_leaves, tree_map


def tensors_in(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def fake_like(tensor, mode):
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def stand_in(tensor, mode):
    """Floating values have shapes alone; others are copied, since a step may change them in place."""
    if tensor.is_floating_point() or tensor.is_complex():
        return fake_like(tensor, mode)
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu") if tensor.is_meta else tensor.detach().cpu().clone()


@contextmanager
def in_training(model):
    """Of a model in train() parts may be in eval(), and stay so. What a train() of the model's own changes is taken back."""
    modes = [(module, module.training) for module in model.modules()]
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    if not model.training:
        model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires in trained:
            parameter.requires_grad = requires


class Attributes:
    """The attributes of a model's modules, with their parts, parameters and buffers, as they are now."""

    def __init__(self, model):
        self.kept = [(name, module, dict(vars(module))) for name, module in model.named_modules()]
        self.contents = [(name, member, value, value.copy()) for name, _, kept in self.kept for member, value in kept.items()
                         if type(value) in (list, dict, set)]

    def changed(self):
        """Names of a module and of its attribute that is another, or holds something else; None if there is none."""
        for name, module, kept in self.kept:
            now = vars(module)
            for member in {**kept, **now}:
                if member not in kept or member not in now or kept[member] is not now[member]:
                    return name, member
        return next(((name, member) for name, member, value, copy in self.contents if items_of(value) != items_of(copy)), None)

    def restore(self):
        for _, module, kept in self.kept:
            vars(module).clear()
            vars(module).update(kept)
        for _, _, value, copy in self.contents:
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(copy)


def items_of(container):
    """Identities of what is directly in it."""
    items = [*container.keys(), *container.values()] if isinstance(container, dict) else container
    return (sorted if isinstance(container, set) else list)(map(id, items))


@contextmanager
def untouched(model, mode):
    """Whatever the step does to the modules' attributes is taken back: caches that forward fills, say. Tensors that are no parameters and
    no buffers have stand-ins meanwhile, those in objects of other classes excepted."""
    own = set(torch.nn.Module().__dict__)
    before = Attributes(model)
    known = {}

    def replaced(leaf):
        if isinstance(leaf, torch.Tensor):
            return known.setdefault(id(leaf), stand_in(leaf, mode))
        return leaf

    try:
        for _, module, kept in before.kept:
            for name, value in kept.items():
                if name not in own and type(value) in (torch.Tensor, torch.nn.Parameter, list, tuple, dict) and tensors_in(value):
                    module.__dict__[name] = tree_map(replaced, value)
        yield
    finally:
        before.restore()
