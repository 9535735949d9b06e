"""Costs of an instance of Galvatron's search, for `stowage parallel --costs`.

    galvatron.py layers.json NUMBER > costs.json

layers.json: ../shared/data/parallel/galvatron. One stage of all devices; every layer has a variant of its own there."""

import json
import re
import sys

MEGABYTE = 10**6


def spread(name):
    """(parts, split) of a strategy such as 1-4*-2f-c: 1 stage, 4 devices share each product, 2 parts of the batch."""
    split, parts = re.match(r"1-(\d+)\*-(\d+)", name).groups()
    return int(parts), int(split)


def variant(name, parts, split, seconds, with_exchange, megabytes):
    # Only sums of forward and backward count for one stage.
    return {"name": name, "parts": parts, "split": split, "forward_seconds": 0, "backward_seconds": seconds,
            "seconds_with_exchange": with_exchange, "bytes": megabytes * MEGABYTE}


def costs(instance):
    names = instance["variants"]
    layer = [variant(name, *spread(name), *numbers)
             for name, *numbers in zip(names, instance["layer_seconds"], instance["layer_seconds_with_gradient_exchange"],
                                       instance["layer_memory_megabytes"])]
    # Embedding and head together, in one of several ways that go with every layer. No exchange of theirs is counted.
    ends = [variant(f"ends {i}", instance["devices"], 1, way["seconds"], 0, way["memory_megabytes"])
            for i, way in enumerate(instance["embedding_and_head"])]
    changes = [{"from": a, "to": b, "seconds": seconds}
               for a, row in zip(names, instance["seconds_between_different_variants"]) for b, seconds in zip(names, row)]
    changes += [{"from": end["name"], "to": name, "seconds": 0} for end in ends for name in names]
    return {"format": "stowage.parallel_costs", "version": 1, "devices": instance["devices"], "use_all_devices": True,
            "micro_batches": instance["micro_batches"], "memory_bytes": instance["memory_megabytes"] * MEGABYTE,
            "layers": [{"name": "ends", "variants": ends},
                       {"name": "layer", "repeat": instance["layers"], "variants": layer}],
            "changes": changes}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        json.dump(costs(json.load(file)["instances"][int(sys.argv[2])]), sys.stdout)
