"""gpu_check.jsonl: what gpu_check found, one JSON object a line. Each line is on the disk before the next stage begins, so
that a run which is cut off has lost only what had not run. A later run appends to the file.

    {"kind": "run", …}                                  what runs where, and the stages that were asked for
    {"kind": "stage", "name": …, "seconds": …, "result": …}   for each that ran
    {"kind": "end", "seconds": …, "summary": …, "verdicts": …}
"""

import json
import os
from pathlib import Path

NAME = "gpu_check.jsonl"
SAME = ("commit", "device", "small", "card_name")  # of all runs that are judged together


class Record:
    def __init__(self, folder):
        path = Path(folder) / NAME
        if path.is_file():  # a line that was cut off must not become the begin of the next one
            whole = path.read_bytes().rfind(b"\n") + 1
            os.truncate(path, whole)
        self.file = open(path, "a", encoding="utf-8")

    def write(self, kind, **values):
        self.file.write(json.dumps({"kind": kind, **values}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self):
        self.file.close()


def begin(folder, described):
    """A Record with the line of a run that begins. Throws ValueError where a run of another build or card lies there."""
    if (Path(folder) / NAME).is_file():
        result = merged([folder], least=0)
        add({"kind": "run", **described}, folder, result)
    record = Record(folder)
    record.write("run", **described)
    return record


def items(path):
    """The objects of a file. Its last line may have been cut off."""
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def merged(folders, least=1):
    """One result of everything that lies in folders: of a stage that ran more than once, the last one counts, unless it
    was skipped. Throws ValueError where it is not of one build and machine."""
    result = {"stages": {}, "asked": [], "runs": []}
    for folder in folders:
        for item in items(Path(folder) / NAME):
            add(item, folder, result)
    if len(result["runs"]) < least:
        raise ValueError(f"no run in {', '.join(map(str, folders))}")
    return result


def add(item, folder, result):
    if item["kind"] == "run":
        for key in SAME:
            if result.setdefault(key, item[key]) != item[key]:
                raise ValueError(f"{folder}: {key} is {item[key]!r}, and {result[key]!r} of another run")
        result.update(card=item["card"], speed=item["speed"])
        result["runs"].append({"folder": str(folder), "seconds": None, **item})
        result["asked"] = list(dict.fromkeys([*result["asked"], *item["asked"]]))
    elif item["kind"] == "stage":
        was_skipped = isinstance(item["result"], dict) and "skipped" in item["result"]
        if not was_skipped or item["name"] not in result["stages"]:
            result["stages"][item["name"]] = item["result"]
    elif item["kind"] == "end":
        result["runs"][-1]["seconds"] = item["seconds"]
