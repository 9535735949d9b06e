"""llm.c as a peer: the command of its train_gpt2cu, and the steps that it prints as the events of torch_peer.py. What it prints
is not trusted: a line counts only where it has the form of the step that comes next."""

import re
from pathlib import Path

import model_file
import outcome
from cases import LEARNING

TOKENS = 50257  # GPT-2's; it refuses the padding that follows them
STEP = re.compile(r"step +(\d{1,9})/\d{1,9} \| loss +(\d{1,9}\.\d{1,9}) .{0,200}\| (\d{1,12}\.\d{1,6}) ms \|")
LONGEST_LINE = 400  # characters that are looked at


def command(program, case, files, steps):
    """Writes the batch to `files`. The whole batch is one micro-batch, which every step trains on (-a)."""
    tokens = Path(files) / "llm_c.bin"
    tokens.write_bytes(model_file.token_file([min(token, TOKENS - 1) for token in model_file.read_tokens(f"{files}/tokens.bin")]))
    options = {
        "i": tokens,
        "j": tokens,
        "e": f"d{case.layers}",  # a GPT-2 of this depth, with random weights
        "b": case.batch,
        "t": case.sequence,
        "d": case.tokens,
        "x": steps,
        "l": LEARNING["learning_rate"],
        "c": LEARNING["weight_decay"],
        "a": 1,
        "r": 0,  # recomputes nothing
        "v": steps + 1,  # validates before the first step and behind the last one,
        "m": 1,  # with one batch
        "s": 0,  # writes no text
    }
    return [str(program), *(str(word) for name, value in options.items() for word in (f"-{name}", value))]


def events(case, done, steps):
    """Of what watch.run returned."""
    found = []
    for line in done["output"]:
        match = STEP.match(line[:LONGEST_LINE])
        if match and len(found) < steps and int(match[1]) == len(found) + 1:
            found.append({"event": "step", "step": int(match[1]), "loss": float(match[2]), "seconds": float(match[3]) / 1e3})
    if not found and any(outcome.OUT_OF_MEMORY.search(line[:LONGEST_LINE]) for line in done["output"]):
        return [{"event": outcome.FITS_NOT, "message": "out of memory with the whole batch at once"}]
    return [{"event": "attempt", "micro_batch": case.batch}, *found] if found else []
