"""Stages that train models of a given shape. Each returns plain data; what it means is judged in judge.py."""

import json
import math
import re
import tempfile
from pathlib import Path

QUARTER = 0.25
BUDGETS = 4  # beside unlimited
NO_ROOM = 3  # train_shape's exit code where no plan fits
PROFILE_STEPS = 6  # the first ones touch memory for the first time, and are clipped


def bits(context):
    """Losses of the same steps without a limit and in four budgets from the minimum up."""
    results = []
    for model in context.sizes["bits"]:
        name = f"bits {model['model']} {model['type']}"
        numbers = context.numbers(name, model)
        steps = ["--steps", context.sizes["bits_steps"]]
        runs = {"unlimited": context.train(name, model, *steps, "--policy", "none")}
        least = numbers.get("minimum_bytes", 0)
        most = numbers.get("need_bytes", 0)
        for i in range(BUDGETS):
            budget = least + (most - least) * i // BUDGETS
            runs[str(budget)] = context.train(f"{name} in {budget}", model, *steps, "--device-memory", budget)
        results.append({"shape": model, "runs": runs})
    return results


def quarter(context, name):
    """A step without offload, and one in a quarter of what it needs."""
    model = context.sizes[name]
    steps = ["--steps", context.sizes["steps"], "--profile-steps", PROFILE_STEPS]
    unlimited = context.train(name, model, *steps, "--policy", "none")
    setup = unlimited.get("setup", {})
    beside = setup.get("overhead_bytes", 0) if context.sizes.get("overhead_beside") else 0
    budget = beside + int((setup.get("need_bytes", 0) - beside) * QUARTER)
    return {"shape": model, "unlimited": unlimited,
            "quarter": context.train(f"{name} in a quarter", model, *steps, "--device-memory", budget)}


def gpt2(context):
    return quarter(context, "gpt2")


def bert(context):
    return quarter(context, "bert")


def large(context):
    """A model that does not fit its budget without offload; buckets against single tensors, twice in turn, since the host's memory is not as
    fast at all times. Each run measures the host's rate before and after its steps."""
    model = context.sizes["large"]
    context.memory_arguments()  # makes the machine file, which the bucket follows from
    bucket = ["--bucket-size", min(efficient_bucket(context.machine), context.sizes.get("most_bucket_bytes", 1 << 40))]
    numbers = context.numbers("large", model, *bucket)
    overhead = numbers.get("overhead_bytes", 0)
    budget = overhead + int((numbers.get("minimum_bytes", 0) - overhead) * 1.25)
    given = ["--device-memory", budget, "--host-elements", context.sizes["host_elements"]]
    steps = ["--steps", context.sizes["large_steps"], "--profile-steps", PROFILE_STEPS]
    return {"shape": model, "budget_bytes": budget,
            "without_offload": context.train("large without offload", model, *given, "--policy", "none", "--plan-only"),
            "bucketed": context.train("large", model, *steps, *given, *bucket, "--replay-copies"),
            "per_tensor": context.train("large by tensors", model, *steps, *given, "--bucket-size", 1),
            "bucketed_again": context.train("large again", model, *steps, *given, *bucket),
            "per_tensor_again": context.train("large by tensors again", model, *steps, *given, "--bucket-size", 1)}


def billions(context):
    """A model whose parameters and state are many times its budget."""
    return billions_of(context, context.sizes["6.7b"])


def billions_doubled(context):
    """The same with twice the tokens."""
    model = context.sizes["6.7b"]
    return billions_of(context, {**model, "batch": 2 * model["batch"]})


def billions_8bit(context):
    """The same with 8-bit moments."""
    return billions_of(context, context.sizes["6.7b"], "--moments", "8bit")


def billions_of(context, model, *arguments):
    budget = context.sizes.get("6.7b_budget") or int(context.numbers("6.7b", model, *arguments).get("minimum_bytes", 0) * 1.25)
    name = f"6.7b, {model['batch'] * model['sequence']} tokens"
    return {"shape": model, "budget_bytes": budget,
            "offloaded": context.train(name, model, "--device-memory", budget, "--steps", context.sizes["large_steps"],
                                       *arguments, most_seconds=180)}


def billions_whole(context):
    """The same all on the card, where it has room: what its budget costs."""
    model = context.sizes["6.7b"]
    run = context.train("6.7b on the card", model, "--steps", context.sizes["large_steps"], "--policy", "none", most_seconds=180)
    return {"shape": model, **({"no_room": run} if run["code"] == NO_ROOM else {"unlimited": run})}


def efficient_bucket(machine_file):
    """The smallest size that reaches 95% of the calibrated peak both ways, as the planner reckons."""
    if not machine_file.is_file():
        return 1 << 20
    machine = json.loads(machine_file.read_text(encoding="utf-8"))
    knees = [19 * machine[way]["latency_seconds"] * machine[way]["bytes_per_second"] for way in ("h2d", "d2h")]
    return max(1 << 16, math.ceil(max(knees)))


def trainer(context):
    """train_gpt itself, on this program's own text: all on the device, and halfway down to the minimum."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_bytes(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py"))))
        command = [context.programs.train_gpt, "--data", text, "--device", context.device, *context.memory_arguments(),
                   "--steps", 5, *context.sizes["trainer"]]
        planned = context.runner.run([*command, "--plan-only"])
        number = printed_bytes(planned["output"])
        budget = (number.get("need", 0) + number.get("minimum", 0)) // 2
        result = {"code": planned["code"], "budget_bytes": budget}
        for name, memory in (("unlimited", ["--policy", "none"]), ("smaller", ["--device-memory", budget])):
            log = Path(folder) / f"{name}.jsonl"
            done = context.runner.run([*command, *memory, "--log", log])
            result[name] = {"code": done["code"], "command": done["command"], "errors": done["errors"][-2000:],
                            "start": printed_start(done["output"]), "steps": logged_steps(log)}
            context.runner.say(f"trainer {name}: {result[name]['start']}")
    return result


def logged_steps(log):
    """The steps of train_gpt's log; the last line of a run that was killed may be cut off."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.is_file() else []
    return [json.loads(line) for line in lines]


def printed_bytes(output):
    """{"need": …, "minimum": …} from what train_gpt prints of a plan, overhead included."""
    lines = re.findall(r"^ *(need|minimum) .*?\((\d+) bytes\)", output, re.MULTILINE)
    return {name: int(count) for name, count in lines}


def printed_start(output):
    """Where train_gpt's time went before its first step, in its words."""
    found = re.search(r"^start +(.*)$", output, re.MULTILINE)
    return found[1] if found else None
