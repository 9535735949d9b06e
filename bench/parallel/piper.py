"""Costs of Piper's BERT-32, for `stowage parallel --costs`.

    piper.py bert32a100.json MEMORY_GIB DEVICES [mask-later] > costs.json

bert32a100.json: ../shared/data/parallel/piper. The nodes become a chain: those that only feed others stand before their first
reader. The mask (node 4) feeds all layers; it may stand in the first stage or in that of the first layer, so the best of both
orders counts."""

import json
import sys

BYTES_PER_SECOND = 25 * 2**30
MICRO_BATCHES = 1920
MASK, EMBEDDING = 4, 1


def chain(nodes, edges, mask_later):
    """Ids in the order of the chain."""
    sources = {edge["sourceId"] for edge in edges} - {edge["destId"] for edge in edges}
    order = []
    for node in sorted(set(nodes) - sources):
        if node == EMBEDDING:
            order += sorted(sources - {MASK}) + ([] if mask_later else [MASK]) + [node] + ([MASK] if mask_later else [])
        else:
            order.append(node)
    return order


def sync_bytes(nodes, edge):
    """Bytes that come to an edge where it enters a stage with split layers, and where it leaves one."""
    source, reader = str(edge["sourceId"]), str(edge["destId"])
    found = set()
    for split, variants in nodes[edge["destId"]]["TMPCs"].items():
        for variant in variants:
            found.add((split == "1", "entering", variant["syncTimeFw"][source]))
    for split, variants in nodes[edge["sourceId"]]["TMPCs"].items():
        for variant in variants:
            found.add((split == "1", "leaving", variant["syncTimeBw"][reader]))
    whole = {bytes for alone, _, bytes in found if alone}
    split_bytes = {end: {bytes for alone, which, bytes in found if not alone and which == end} for end in ("entering", "leaving")}
    if whole != {0.0} or any(len(each) != 1 for each in split_bytes.values()):
        raise SystemExit(f"the edge {source} to {reader} costs more than two numbers can say")
    return {end: int(each.pop()) for end, each in split_bytes.items()}


def costs(data, memory_gib, devices, mask_later):
    nodes = {node["id"]: node for node in data["nodes"]}
    order = chain(nodes, data["edges"], mask_later)
    divisors = [parts for parts in range(1, devices + 1) if MICRO_BATCHES % parts == 0]
    layers = []
    for node in order:
        variants = []
        for split, ways in nodes[node]["TMPCs"].items():
            for parts in divisors:
                if parts * int(split) > devices:
                    continue
                for way in ways:
                    exchange = 4 * (parts - 1) * way["parameterSize"] / (parts * MICRO_BATCHES) / BYTES_PER_SECOND
                    variants.append({"name": f"{way['id']} {parts}x{split}", "parts": parts, "split": int(split), "forward_seconds": 0,
                                     "backward_seconds": way["timePerSample"] / parts + exchange,
                                     "bytes": int(way["memoryUsageB"]), "bytes_in_flight": int(way["memoryUsageA"])})
        layers.append({"name": str(node), "variants": variants})
    values = [{"from": str(edge["sourceId"]), "to": str(edge["destId"]), "bytes": int(edge["communicationCost"]), **sync_bytes(nodes, edge)}
              for edge in data["edges"]]
    return {"format": "stowage.parallel_costs", "version": 1, "devices": devices, "micro_batches": MICRO_BATCHES,
            "memory_bytes": memory_gib * 2**30, "objective": "largest_stage", "in_flight": "parts",
            "link": {"bytes_per_second": BYTES_PER_SECOND, "sends": "within", "carried_by": "parts"}, "layers": layers, "values": values}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        json.dump(costs(json.load(file), int(sys.argv[2]), int(sys.argv[3]), "mask-later" in sys.argv[4:]), sys.stdout)
