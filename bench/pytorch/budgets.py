#!/usr/bin/env python3
"""How far plans of recorded steps stand from their lower bounds, by the budget.

    python bench/pytorch/budgets.py TRACE…     (as bench/pytorch/plans.py --traces leaves them; .gz or not)

Prints a row for each trace: the minimum as a share of the need, then for each budget, a share of the need, the gap and the seconds
of planning. Set STOWAGE_PLAN_LIBRARY to ask another build.
"""

import argparse
import gzip
import time
from pathlib import Path

import stowage


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--machine", default="rtx4090")
    parser.add_argument("--shares", default="0.1,0.15,0.2,0.3,0.5,0.7", help="of the need")
    arguments = parser.parse_args()
    shares = [float(share) for share in arguments.shares.split(",")]
    print(f"| step | minimum | {' | '.join(f'{share:.0%}' for share in shares)} |\n|---|---|{'---|' * len(shares)}")
    for path in arguments.traces:
        trace = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        asked = stowage.plan_trace(trace, machine=arguments.machine).json
        need, minimum = asked["need_bytes"], asked["minimum_device_bytes"]
        cells = []
        for share in shares:
            if share * need < minimum:
                cells.append("")
                continue
            begin = time.perf_counter()
            answer = stowage.plan_trace(trace, machine=arguments.machine, device_memory=int(share * need)).json
            cells.append(f"{100 * answer['gap']:.1f} %, {time.perf_counter() - begin:.1f} s")
        print(f"| {path.name.split('.')[0]} | {minimum / need:.1%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
