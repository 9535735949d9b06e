#!/usr/bin/env python3
"""How often a step's clip scale is not the one that was expected: 1, or the last step's, for scales that are rounded down to a power of
two (floor) or to the nearest one. A norm per line.

    scales.py CLIP NORMS.txt
"""

import math
import sys


def scale(norm, clip, rounding):
    return 1.0 if norm <= clip else 2.0 ** rounding(math.log2(clip / norm))


clip = float(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as file:
    norms = [float(line) for line in file]
print(f"{len(norms)} steps, clipped {sum(norm > clip for norm in norms) / len(norms):.1%}")
for name, rounding in (("floor", math.floor), ("nearest", round)):
    scales = [1.0] + [scale(norm, clip, rounding) for norm in norms]
    others = [new != old for old, new in zip(scales, scales[1:])]
    print(f"{name}: another scale than the last step's in {sum(others) / len(others):.1%}, of the last fifth in "
          f"{sum(others[-len(others) // 5:]) / (len(others) // 5):.1%}")
