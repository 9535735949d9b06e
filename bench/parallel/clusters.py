"""The best grids of models on clusters, as a table in which every row is a command.

    python3 bench/parallel/clusters.py STOWAGE ROWS.jsonl

STOWAGE is the program. Rows that ROWS.jsonl has already are not asked again, so a run goes on where it stopped.
All figures are predicted."""

import json
import shlex
import subprocess
import sys
import time

MODELS = ["6.7b", "13b", "30b"]
# Machine, nodes, samples of a batch.
CLUSTERS = [("4x-rtx4090", 1, 8), ("8x-a100-80gb", 1, 16), ("2x-rtx4090", 1, 8), ("8x-h200", 2, 32), ("8x-h200", 4, 64)]
SEARCHES = {"grid": [], "without offload": ["--policy", "none"]}
LIMIT = "20"  # plans of stages


def commands():
    for machine, nodes, batch in CLUSTERS:
        for model in MODELS:
            for search, options in SEARCHES.items():
                words = ["parallel", "--gpt", model, "--batch", str(batch), "--machine", machine, "--limit", LIMIT]
                words += ["--nodes", str(nodes)] if nodes > 1 else []
                yield (model, machine, nodes, search), words + options


def ask(program, words):
    began = time.monotonic()
    run = subprocess.run([program, *words, "--json"], capture_output=True, text=True)
    answer = json.loads(run.stdout) if run.stdout else {"feasible": False, "error": run.stderr.strip()}
    answer["searched_seconds"] = round(time.monotonic() - began, 1)
    answer["command"] = shlex.join(["stowage", *words])
    return answer


def seconds(grid):
    return f"{'≥ ' if grid['is_bound'] else ''}{grid['step_seconds']:.2f} s"


def shape(grid):
    ranges = f" of {grid['ranges']}" if grid["ranges"] > 1 else ""
    return f"{grid['stages']}{ranges} x {grid['parts']} x {grid['split']}, {grid['micro_batches']} of {grid['micro_batch_samples']}"


def table(rows):
    print("| model | cluster | best grid (stages of ranges x parts x split, micro-batches) | step | no grid is below | data parallel alone "
          "| GPipe, equal parts | Megatron-LM's rule | without offload | command |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (model, machine, nodes, search), answer in rows.items():
        if search != "grid":
            continue
        others = [seconds(rule["grid"]) if rule["fits"] else "does not fit" for rule in answer.get("others", [])]
        others = (others + ["", "", ""])[:3]
        resident = rows.get((model, machine, nodes, "without offload"), {})
        without = seconds(resident["grids"][0]) if resident.get("feasible") else "does not fit"
        best = answer["grids"][0] if answer["feasible"] else None
        cells = [model, f"{nodes} of {machine}" if nodes > 1 else machine, shape(best) if best else "none",
                 seconds(best) if best else "", f"{answer['bound_seconds']:.2f} s" if best else "", *others, without,
                 f"`{answer['command']}`"]
        print("| " + " | ".join(cells) + " |")


def main():
    program, path = sys.argv[1:]
    rows = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                rows[tuple(row["key"])] = row["answer"]
    except FileNotFoundError:
        pass
    with open(path, "a", encoding="utf-8") as file:
        for key, words in commands():
            if key not in rows:
                rows[key] = ask(program, words)
                file.write(json.dumps({"key": key, "answer": rows[key]}) + "\n")
                file.flush()
    table(rows)


if __name__ == "__main__":
    main()
