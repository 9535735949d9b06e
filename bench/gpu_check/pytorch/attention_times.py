#!/usr/bin/env python3
"""Backward of attention by cuDNN through PyTorch, deterministic and not, and by PyTorch's flash attention, at the shapes that op_times has.
Prints lines of JSON."""

import argparse
import json
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

REPETITIONS = 9
SHAPES = [("gpt2", 64, 12, 1024, 768, True), ("bert", 128, 16, 512, 1024, False), ("6.7b", 8, 32, 1024, 4096, True),
          ("6.7b at 16,384 tokens", 16, 32, 1024, 4096, True)]
METHODS = [("cudnn", SDPBackend.CUDNN_ATTENTION, False), ("cudnn deterministic", SDPBackend.CUDNN_ATTENTION, True),
           ("flash", SDPBackend.FLASH_ATTENTION, False)]


def device_seconds(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def backward_seconds(samples, heads, sequence, width, causal, backend, deterministic):
    torch.use_deterministic_algorithms(deterministic)
    qkv = torch.randn(samples, sequence, 3, heads, width // heads, device="cuda", dtype=torch.bfloat16)
    query, key, value = (part.transpose(1, 2).requires_grad_() for part in qkv.unbind(2))
    with sdpa_kernel(backend):
        out = scaled_dot_product_attention(query, key, value, is_causal=causal)
    gradient = torch.randn_like(out)
    times = [device_seconds(lambda: torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True))
             for _ in range(REPETITIONS + 1)]
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    for name, *shape in [("tiny", 2, 2, 128, 64, True)] if given.small else SHAPES:
        for method, backend, deterministic in METHODS:
            line = {"kind": "slices", "by": "PyTorch", "model": name, "method": method}
            try:
                line["seconds"] = backward_seconds(*shape, backend, deterministic)
            except RuntimeError as error:  # a method that does not take the shape
                line["refusal"] = str(error)[:300]
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
