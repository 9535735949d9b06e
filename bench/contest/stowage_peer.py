"""Our own trainer as a peer: its command, and its log as the events of torch_peer.py."""

import json
import subprocess
import tempfile
from pathlib import Path

import cases

# By which the budget is less than what is free, for what a driver takes in pieces of its own. Nobody else has a budget.
MARGIN = 64 << 20
SHARE_OF_HOST = 0.8  # of the memory that is free, for what is offloaded


def command(
    program,
    case,
    files,
    folder,
    device,
    device_memory,
    host_memory=None,
    machine=None,
    threads=0,
    steps=cases.STEPS,
    policy=None,
):
    """`folder` gets log.jsonl and plan.json."""
    learning = cases.LEARNING
    words = [
        program,
        "--device",
        device,
        "--init",
        f"{files}/model",
        "--data",
        f"{files}/tokens.bin",
        "--type",
        case.type,
        "--sequence",
        case.sequence,
        "--batch",
        case.batch,
        "--steps",
        steps,
        "--schedule",
        "constant",
        "--warmup",
        0,
        "--learning-rate",
        learning["learning_rate"],
        "--weight-decay",
        learning["weight_decay"],
        "--beta1",
        learning["beta1"],
        "--beta2",
        learning["beta2"],
        "--epsilon",
        learning["epsilon"],
        "--clip",
        learning["clip"],
        "--device-memory",
        device_memory,
        "--threads",
        threads,
        "--log",
        f"{folder}/log.jsonl",
        "--plan-json",
        f"{folder}/plan.json",
    ]
    if host_memory is not None:
        words += ["--host-memory", host_memory]
    if policy:
        words += ["--policy", policy]
    if machine:
        words += ["--machine", machine]
    return [str(word) for word in words]


def lines_of(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def events(case, folder):
    """Of what a run has written there up to its end, whatever ended it."""
    found, peak = [], 0
    for line in lines_of(f"{folder}/log.jsonl"):
        try:
            step = json.loads(line)
            found.append(
                {
                    "event": "step",
                    "step": step["step"],
                    "loss": step["loss"],
                    "seconds": case.tokens / step["tokens_per_second"],
                    "norm": step.get("grad_norm"),
                }
            )
            peak = max(peak, step["device_peak_bytes"])
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            continue  # the last line of a run that was killed
    end = {"event": "peaks", "device_peak_bytes": peak}
    try:
        plan = json.loads("\n".join(lines_of(f"{folder}/plan.json")))
        end.update(
            {
                name: plan[name]
                for name in (
                    "pinned_bytes",
                    "host_bytes",
                    "h2d_bytes",
                    "d2h_bytes",
                    "predicted_step_seconds",
                    "lower_bound_seconds",
                )
            }
        )
    except (ValueError, KeyError):
        pass  # it did not get as far as a plan
    return [{"event": "attempt", "micro_batch": case.batch}, *found, end] if found else []


def need_bytes(program, case, files, environment):
    """Device bytes of a step with everything on the device. OSError where the program does not say."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*command(program, case, files, folder, "simulated", "unlimited", policy="none"), "--plan-only"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        if done.returncode != 0:
            raise OSError(f"{program} does not say what it needs: {done.stderr.strip()}")
        return json.loads(Path(folder, "plan.json").read_text(encoding="utf-8"))["device_peak_bytes"]
