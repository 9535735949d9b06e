#!/usr/bin/env python3
"""AdamW of PyTorch or DeepSpeed on the CPU, timed on demand as host_optimizer does it: a line of JSON for each thing that
it can time, an empty line, then for each number on its input the seconds of one step, by the clock and of the processors.

    peers.py pytorch|deepspeed [--count 50000000]
"""

import argparse
import json
import os
import sys
import time

THREADS = sorted({1, os.cpu_count()})


def parameters(torch, count, number_type):
    """One tensor with a gradient. The optimizer makes its own state."""
    torch.manual_seed(1)
    parameter = torch.nn.Parameter((0.02 * torch.randn(count)).to(number_type))
    parameter.grad = (1e-4 * torch.randn(count)).to(number_type)
    return parameter


def pytorch(count):
    """(name, type, bytes for each parameter, optimizer): the state has the parameter's type."""
    import torch

    for name, number_type, size in (("f32", torch.float32, 4), ("bf16, states too", torch.bfloat16, 2)):
        optimizer = torch.optim.AdamW([parameters(torch, count, number_type)], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        yield f"torch.optim.AdamW {torch.__version__}, fused", name, 7 * size, optimizer


def deepspeed(count):
    """The same of DeepSpeed, whose states are f32."""
    import deepspeed as package
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    for name, number_type, size in (("f32", torch.float32, 4), ("bf16, no master weights", torch.bfloat16, 2)):
        optimizer = DeepSpeedCPUAdam([parameters(torch, count, number_type)], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                     adamw_mode=True, fp32_optimizer_states=True)
        yield f"DeepSpeedCPUAdam {package.__version__}", name, 3 * size + 16, optimizer


def serve(optimizers, count, answers):
    import torch

    things = [(optimizer, threads) for _, _, _, optimizer in optimizers for threads in THREADS]
    for name, number_type, size, _ in optimizers:
        for threads in THREADS:
            print(json.dumps({"name": name, "type": number_type, "instruction_set": "", "threads": threads, "bytes": size, "elements": count}),
                  file=answers)
    print(file=answers, flush=True)
    for line in sys.stdin:
        optimizer, threads = things[int(line)]
        torch.set_num_threads(threads)
        optimizer.step()  # memory that was not used for seconds takes longer the first time
        processors, begin = time.process_time(), time.perf_counter()
        optimizer.step()
        print(time.perf_counter() - begin, time.process_time() - processors, file=answers, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["pytorch", "deepspeed"])
    parser.add_argument("--count", type=int, default=50_000_000)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages say while they build belongs to the errors
    optimizers = list({"pytorch": pytorch, "deepspeed": deepspeed}[options.peer](options.count))
    for _, _, _, optimizer in optimizers:
        optimizer.step()  # makes the state
    serve(optimizers, options.count, answers)


if __name__ == "__main__":
    main()
