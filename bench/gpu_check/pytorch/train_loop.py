#!/usr/bin/env python3
"""An ordinary PyTorch training program, which knows nothing of Stowage. Prints a line of JSON for each step."""

import json
import time

import torch
from peak import Peak
from tiny_gpt import Training, options


def main():
    given = options(__doc__).parse_args()
    card = given.device != "cpu"
    with Peak(given.device) as peak:
        training = Training(given)
        for step in range(given.steps):
            begin = time.monotonic()
            loss = training.step(step)
            print(json.dumps({"kind": "step", "step": step, "loss": loss, "loss_bits": loss.hex(),
                              "seconds": time.monotonic() - begin}), flush=True)
    print(json.dumps({"kind": "end", "torch": torch.__version__, "nvml_bytes": peak.bytes,
                      "reserved_bytes": torch.cuda.max_memory_reserved() if card else None}), flush=True)


if __name__ == "__main__":
    main()
