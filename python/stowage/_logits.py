"""What a loss that is computed in chunks would need, where the logits are what a step does not fit for."""

import json

CHUNK = 2048  # tokens


def size_of(line):
    if "bytes" in line:
        return line["bytes"]
    size = {"f32": 4, "f64": 8, "i32": 4, "bf16": 2, "f16": 2, "i16": 2, "u8": 1}[line["type"]]
    for extent in line["shape"]:
        size *= extent
    return size


def in_chunks(trace, op):
    """The trace as if the values of the last unit that are as large as its largest one came in chunks of so many tokens, how many
    they are, and the bytes of the largest; nothing where `op` does not touch one of them, or there is but one chunk."""
    lines = [json.loads(line) for line in trace.decode().splitlines()]
    ops = [line for line in lines if "op" in line]
    tokens = lines[0].get("tokens", 0)
    named = next((line for line in ops if line["op"] == op), None)
    last = [line for line in ops if line["unit"] == max_unit(ops)]
    if named is None or named not in last or tokens <= CHUNK:
        return None
    tensors = {line["tensor"]: line for line in lines if "tensor" in line}
    touched = {name for line in last for name in (*line["reads"], *line["writes"])}
    sizes = {name: size_of(tensors[name]) for name in touched if tensors[name]["kind"] == "activation"}
    largest = max(sizes.values(), default=0)
    logits = {name for name, size in sizes.items() if 2 * size >= largest}
    if not logits.intersection((*named["reads"], *named["writes"])):
        return None
    for name in logits:
        chunk = max(4, -(-sizes[name] * CHUNK // tokens))
        line = {member: value for member, value in tensors[name].items() if member not in ("type", "shape")}
        tensors[name].clear()
        tensors[name].update(line, bytes=chunk)
    for line in ops:  # no pair of other sizes
        line["may_alias"] = [pair for pair in line.get("may_alias", []) if not logits.intersection(pair)]
    return "\n".join(json.dumps(line) for line in lines).encode(), len(logits), largest


def max_unit(ops):
    """The unit in which forward turns into backward."""
    return [line for line in ops if line["phase"] == "forward"][-1]["unit"]
