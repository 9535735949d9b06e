#!/usr/bin/env python3
"""A training loop, and forward and backward as one CUDA graph, with the allocator that PYTORCH_CUDA_ALLOC_CONF names, or with
Stowage's by PyTorch's pluggable interface. Prints lines of JSON."""

import ctypes
import json
import time

import torch
from peak import Peak
from tiny_gpt import Training, options

REPLAYS = 3  # of the graph


def use_stowage(path):
    """As docs/allocator.md has it."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "stowage_malloc", "stowage_free")
    library = ctypes.CDLL(path)

    def address(name):
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value

    hooks = allocator.allocator()
    hooks.set_record_stream_fn(address("stowage_record_stream"))
    hooks.set_reset_fn(address("stowage_empty_cache"))
    hooks.set_memory_fraction_fn(address("stowage_set_memory_fraction"))
    hooks.set_begin_allocate_to_pool(address("stowage_begin_allocate_to_pool"))
    hooks.set_end_allocate_to_pool_fn(address("stowage_end_allocate_to_pool"))
    hooks.set_release_pool(address("stowage_release_pool"))
    torch.cuda.memory.change_current_allocator(allocator)


def graph_losses(training):
    """Losses of forward and backward that were captured once and replayed with new tokens."""
    tokens = training.tokens(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # lazy initialisation belongs before the capture
        training.optimizer.zero_grad()
        training.model.loss(tokens).backward()
    torch.cuda.current_stream().wait_stream(side)
    training.optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = training.model.loss(tokens)
        loss.backward()
    losses = []
    for step in range(REPLAYS):
        tokens.copy_(training.tokens(step))
        graph.replay()
        losses.append(loss.item().hex())
    return losses


def main():
    parser = options(__doc__)
    parser.add_argument("--stowage", metavar="LIBRARY", help="libstowage_allocator.so: allocate by it")
    given = parser.parse_args()
    card = given.device != "cpu"
    with Peak(given.device) as peak:
        if given.stowage:
            use_stowage(given.stowage)
        training = Training(given)
        for step in range(given.steps):
            begin = time.monotonic()
            loss = training.step(step)
            print(json.dumps({"kind": "step", "step": step, "loss": loss, "loss_bits": loss.hex(),
                              "seconds": time.monotonic() - begin}), flush=True)
        graph = graph_losses(training) if card else []
    print(json.dumps({"kind": "end", "torch": torch.__version__, "nvml_bytes": peak.bytes, "graph_losses": graph,
                      "backend": torch.cuda.get_allocator_backend() if card else None}), flush=True)


if __name__ == "__main__":
    main()
