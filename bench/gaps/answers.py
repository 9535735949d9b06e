"""What bench/gaps/run asks `stowage plan`, and what its answers have in common: gaps, rises and their tables."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = {"1.3b": "24x2048", "13b": "40x5120", "175b": "96x12288", "bert-large": None,
          "2.7b": "32x2560", "6.7b": "32x4096", "30b": "48x7168", "66b": "64x9216"}
RISE, GAP, SHARE = 0.002, 0.10, 0.90


def words(model, devices=1):
    """The model and its batch. Each device has the batch that one alone would have."""
    shape = MODELS[model]
    if shape is None:
        return ["--bert", "large", "--sequence", "512", "--batch", 32 * devices]
    return ["--gpt", shape, "--sequence", "2048", "--batch", 8 * devices]


def ask(stowage, model, machine, more, devices=1):
    command = [stowage, "plan", *words(model, devices), "--machine", ROOT / "machines" / f"{machine}.json", "--json"]
    command += (["--devices", devices] if devices > 1 else []) + more
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if not done.stdout.startswith(("{", "[")):
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def is_close(row):
    return row["gap"] <= GAP


def rises(before, row):
    return row["step_seconds"] > before["step_seconds"] * (1 + RISE)


def slower(before, row):
    return f"slower by {100 * (row['step_seconds'] / before['step_seconds'] - 1):.1f} %"


def defects(rows, where):
    return [f"{where}: {slower(before, row)} with more memory, at {row['budget_bytes']} bytes"
            for before, row in zip(rows, rows[1:]) if rises(before, row)]


def share_defect(rows):
    close = sum(map(is_close, rows)) / len(rows)
    return [] if close >= SHARE else [f"only {100 * close:.1f} % of the gaps are at most {100 * GAP:.0f} %"]


def describe(row):
    text = f"{100 * row['gap']:.0f} %" if row["gap"] >= 0.005 else "0 %"
    return text if is_close(row) else f"**{100 * row['gap']:.1f} %**"


def read(results, key):
    """The answers in the file, by what `key` takes of each."""
    if not results or not results.exists():
        return {}
    return {key(each): each for each in map(json.loads, results.read_text().splitlines())}


def keep(results, answer):
    if results:
        with results.open("a") as file:
            file.write(json.dumps(answer) + "\n")
