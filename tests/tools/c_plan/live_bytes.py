"""What a real run of PyTorch holds."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """The most bytes of storages that live at a time."""

    def __init__(self, tensors):
        super().__init__()
        self.live, self.now, self.most = {}, 0, 0
        for tensor in tensors:
            self.see(tensor)

    def see(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata in self.live:
            return
        self.live[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.gone, storage._cdata)

    def gone(self, key):
        self.now -= self.live.pop(key, 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        return result
