"""Costs of a profile of PipeDream, for `stowage parallel --costs`.

    pipedream.py vgg16.graph.txt DEVICES > costs.json

graph.txt: ../shared/data/parallel/pipedream. A graph that branches becomes a chain in a topological order, with the bytes of
all values that cross each cut."""

import json
import re
import sys

BYTES_PER_SECOND = 1e9
NODE = re.compile(r"(\S+) -- (.*) -- forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), "
                  r"activation_size=(\[[^]]*\]|[\d.]+), parameter_size=([\d.]+)$")


def read(path):
    """The nodes by name, and the edges, without the inputs."""
    nodes, edges, inputs = {}, [], set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("\t"):
                edges.append(tuple(line.strip().split(" -- ")))
            elif line.strip():
                name, what, forward, backward, activation, parameters = NODE.match(line.strip()).groups()
                # A node of several outputs lists their bytes.
                nodes[name] = {"forward": float(forward) / 1e3, "backward": float(backward) / 1e3,
                               "activation": sum(int(float(part)) for part in re.findall(r"[\d.]+", activation)), "parameters": float(parameters)}
                if what.startswith("Input"):
                    inputs.add(name)
    kept = {name: node for name, node in nodes.items() if name not in inputs}
    return kept, [edge for edge in edges if not inputs & set(edge)]


def chain(nodes, edges):
    """The nodes in a topological order; of those that are free the one that was numbered first."""
    number = lambda name: int(re.sub(r"\D", "", name))
    waits = {name: sum(edge[1] == name for edge in edges) for name in nodes}
    order = []
    while len(order) < len(nodes):
        name = min((name for name, count in waits.items() if count == 0), key=number)
        del waits[name]
        order.append(name)
        for source, reader in edges:
            if source == name:
                waits[reader] -= 1
    return order


def costs(path, devices):
    nodes, edges = read(path)
    order = chain(nodes, edges)
    place = {name: i for i, name in enumerate(order)}
    cuts = []
    for cut in range(1, len(order)):
        crossing = {source for source, reader in edges if place[source] < cut <= place[reader]}
        cuts.append(sum(nodes[name]["activation"] for name in crossing))
    layers = []
    for name in order:
        node = nodes[name]
        variants = []
        for parts in range(1, devices + 1):
            # Gradients of `parts` replicas, once a micro-batch of each.
            exchange = 4 * (parts - 1) * node["parameters"] / (BYTES_PER_SECOND * parts)
            variants.append({"name": str(parts), "parts": parts, "split": 1, "forward_seconds": node["forward"] / parts,
                             "backward_seconds": (node["backward"] + exchange) / parts})
        layers.append({"name": name, "variants": variants})
    # A micro-batch more or less does not change the largest stage.
    return {"format": "stowage.parallel_costs", "version": 1, "devices": devices, "use_all_devices": True, "micro_batches": 1,
            "objective": "largest_stage", "link": {"bytes_per_second": BYTES_PER_SECOND, "sends": "beside", "carried_by": "parts"},
            "layers": layers, "cut_bytes": cuts}


if __name__ == "__main__":
    json.dump(costs(sys.argv[1], int(sys.argv[2])), sys.stdout)
