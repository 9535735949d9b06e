"""Steps with exact and with coded activations, as a table in which every row is three commands.

    python3 bench/codec/table.py STOWAGE ROWS.jsonl

STOWAGE is the program. Rows that ROWS.jsonl has already are not asked again, so a run goes on where it stopped.
All figures are predicted."""

import json
import shlex
import subprocess
import sys

MACHINES = ["rtx4090", "h200"]
MODELS = ["24x1024", "24x2048", "32x4096"]
SHAPES = [(1024, 16), (16384, 1)]  # tokens of a sample, samples
SHARES = [0.25, 0.5]  # of what the exact step needs
CODES = ["off", "8", "4"]


def ask(program, words):
    run = subprocess.run([program, *words, "--json"], capture_output=True, text=True)
    answer = json.loads(run.stdout) if run.stdout else {"feasible": False, "error": run.stderr.strip()}
    answer["command"] = shlex.join(["stowage", *words])
    return answer


def cases():
    for machine in MACHINES:
        for model in MODELS:
            for sequence, batch in SHAPES:
                words = ["plan", "--gpt", model, "--sequence", str(sequence), "--batch", str(batch), "--machine", machine]
                yield {"machine": machine, "model": model, "sequence": sequence}, words


def key(row):
    return tuple(row[name] for name in ("machine", "model", "sequence", "share", "codes"))


def fill(program, path, rows):
    known = {key(row): row for row in rows}
    with open(path, "a") as file:
        for case, words in cases():
            need = None
            for share in [1, *SHARES]:
                for codes in CODES:
                    row = {**case, "share": share, "codes": codes}
                    if key(row) not in known:
                        memory = [] if need is None else ["--device-memory", str(int(share * need))]
                        if need is None:
                            memory = ["--device-memory", "unlimited"]
                        row["answer"] = ask(program, words + memory + ["--code-activations", codes])
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        known[key(row)] = row
                    if share == 1 and codes == "off":
                        need = known[key(row)]["answer"]["need_bytes"]
    return known


def step(answer, exact=None):
    if not answer.get("feasible"):
        return "does not fit"
    text = f"{answer['step_seconds']:.3f} s"
    if exact is not None and exact.get("feasible"):
        text += f" ({answer['step_seconds'] / exact['step_seconds']:.2f})"
    return text


def instead(answer):
    if not answer.get("feasible"):
        return ""
    return f"{answer['activations_recomputed']} rebuilt, {answer['activations_offloaded']} moved, bound by {answer['bound_by']}"


def table(known):
    print("| machine | GPT | sample | device memory | exact | 8 bits (of exact) | 4 bits (of exact) | activations of the exact plan |")
    print("|---|---|---|---|---|---|---|---|")
    for case, words in cases():
        for share in [1, *SHARES]:
            answers = [known[key({**case, "share": share, "codes": codes})]["answer"] for codes in CODES]
            exact = answers[0]
            budget = exact.get("budget_bytes")
            memory = "all" if share == 1 else f"{share:.0%}: {budget / 2**30:.1f} GiB" if budget else f"{share:.0%}"
            cells = [case["machine"], case["model"], f"{case['sequence']:,}", memory, step(exact)]
            cells += [step(answer, exact) for answer in answers[1:]] + [instead(exact)]
            print("| " + " | ".join(cells) + " |")


def main():
    program, path = sys.argv[1:]
    try:
        with open(path) as file:
            rows = [json.loads(line) for line in file]
    except FileNotFoundError:
        rows = []
    table(fill(program, path, rows))


main()
