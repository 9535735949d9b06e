#!/usr/bin/env python3
"""What a request and a release of device memory cost under PyTorch, by the allocator that PYTORCH_CUDA_ALLOC_CONF names, or by Stowage's. The
caller's turn: for each line of input one round, lines of JSON and "done"."""

import argparse
import json
import statistics
import sys
import time

import torch
from allocators import use_stowage

BLOCK, HITS, MAPS = 64 << 10, 20_000, 10
SIZES = (2 << 20, 32 << 20, 1 << 30)


def timed(count, request, release):
    requests, releases = [], []
    for _ in range(count):
        begin = time.perf_counter()
        held = request()
        middle = time.perf_counter()
        release(held)
        requests.append(middle - begin)
        releases.append(time.perf_counter() - middle)
    return statistics.median(requests), statistics.median(releases)


def raw(size):
    return torch.cuda.caching_allocator_alloc(size)


def give_back(address):
    torch.cuda.caching_allocator_delete(address)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the allocator, for what is printed")
    parser.add_argument("--stowage", metavar="LIBRARY")
    given = parser.parse_args()
    if given.stowage:
        use_stowage(given.stowage)
    torch.empty(1, device="cuda")

    def tell(what, size, turn, times):
        print(json.dumps({"kind": "allocator", "by": f"{given.name} under PyTorch", "what": what, "bytes": size, "round": turn,
                          "request_seconds": times[0], "release_seconds": times[1]}), flush=True)

    for turn, _ in enumerate(sys.stdin):
        nothing = timed(HITS, lambda: None, lambda _: None)
        tell("two calls of nothing", 0, turn, nothing)
        raw_hit = timed(HITS, lambda: raw(BLOCK), torch.cuda.caching_allocator_delete)
        tell("served by the cache", BLOCK, turn, raw_hit)
        tensor = timed(HITS, lambda: torch.empty(BLOCK, dtype=torch.uint8, device="cuda"), lambda _: None)
        tell("torch.empty", BLOCK, turn, tensor)
        for size in SIZES:
            tell("new memory", size, turn, timed(MAPS, lambda size=size: raw(size), give_back))
        print("done", flush=True)


if __name__ == "__main__":
    main()
