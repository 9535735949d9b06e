#!/usr/bin/env python3
"""Replays recorded timelines of steps on cards under given rates, by two models of how lanes share host memory:

    shared  today's (offload/plan/problem/lane_speeds.h): updates and copies share it fairly
    left    copies in get what updates and copies out leave

A timeline (train_shape --timeline) has each instruction as it was planned and as it ran. The plan of its time was
simulated by the model `shared` with the machine file's rates, so the bytes of each copy and update follow from its
planned times. The replay gives each lane the rate that a model has for the lanes that ran beside it, and says
how long the lane would have been busy. It does not move instructions: a lane that is faster begins nothing earlier.

The rates are the machine file's, and those of the timeline itself: of each lane alone, of both directions together, and
in all the largest sum of lanes that ran together; --rate NAME=GB/s sets one (in, out, in_both, out_both, host, total).
Prints Markdown. A model is nearer on a timeline if the errors of the three lanes' busy seconds add up to less.

    bench/prediction/timelines.py [TIMELINE.csv[.gz] MACHINE.json] [--rate host=120 …]      (default: the recorded ones)
"""

import argparse
import bisect
import csv
import gzip
import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "results"
RECORDED = [
    (RESULTS / "2026-11-26-gpu-check-h100/large-timeline.csv.gz", RESULTS / "2026-11-26-gpu-check-h100/machine.json"),
    (RESULTS / "2026-11-26-gpu-check-h200-second/bert-timeline.csv.gz", RESULTS / "2026-11-26-gpu-check-h200-second/machine.json"),
]
LANES = ("h2d", "d2h", "host")
LEAST_SECONDS = 1e-3  # that lanes ran together, for a rate of theirs


@dataclass(frozen=True)
class Rates:
    """Bytes per second: each lane alone, a direction beside the other one, and host memory in all."""

    h2d: float
    d2h: float
    h2d_both: float
    d2h_both: float
    host: float
    total: float

    def wanted(self, lanes):
        """What each of these lanes would have if host memory had room for all."""
        both = "h2d" in lanes and "d2h" in lanes
        return {lane: getattr(self, f"{lane}_both" if both and lane != "host" else lane) for lane in lanes}


def machine_rates(machine):
    """(Rates, latency by lane) of a machine file, as machine_for (machine_file.h) has them."""
    way = {name: machine[name]["bytes_per_second"] for name in ("h2d", "d2h", "h2d_both", "d2h_both")}
    both = {name: min(way[name], way[f"{name}_both"]) for name in ("h2d", "d2h")}
    host = max(rate["bytes_per_second"] for rate in machine["host_rates"])
    total = max(machine["host_total_bytes_per_second"], host, way["h2d"], way["d2h"], sum(both.values()))
    latency = {"h2d": machine["h2d"]["latency_seconds"], "d2h": machine["d2h"]["latency_seconds"], "host": 0.0}
    return Rates(way["h2d"], way["d2h"], both["h2d"], both["d2h"], host, total), latency


def fair(wanted, room):
    """Max-min fair rates: all rise evenly until one has what it wants or the room is used up."""
    rates, left = {}, dict(wanted)
    while left:
        lane = min(left, key=left.get)
        rates[lane] = min(left.pop(lane), room / (len(left) + 1))
        room -= rates[lane]
    return rates


def shared(rates, lanes):
    return fair(rates.wanted(lanes), rates.total)


def left(rates, lanes):
    wanted = rates.wanted(lanes)
    copies_in = wanted.pop("h2d", None)
    found = fair(wanted, rates.total)
    if copies_in is not None:
        found["h2d"] = max(0.0, min(copies_in, rates.total - sum(found.values())))
    return found


MODELS = {"shared": shared, "left": left}


class Spans:
    """Which lanes ran when in a step that repeats after `period` seconds; `items`: (lane, begin, end)."""

    def __init__(self, items, period):
        self.period = period
        changes = defaultdict(lambda: dict.fromkeys(LANES, 0))
        for lane, begin, end in items:
            for shift in (-period, 0, period):  # what runs on into the next step runs in this one, too
                changes[begin + shift][lane] += 1
                changes[end + shift][lane] -= 1
        self.begins, self.lanes, running = [], [], dict.fromkeys(LANES, 0)
        for time in sorted(changes):
            for lane, change in changes[time].items():
                running[lane] += change
            self.begins.append(time)
            self.lanes.append(frozenset(lane for lane in LANES if running[lane] > 0))

    def within(self, begin, end):
        """(lanes, seconds) of each span between two times."""
        at = max(0, bisect.bisect_right(self.begins, begin) - 1)
        while at + 1 < len(self.begins) and self.begins[at] < end:
            seconds = min(end, self.begins[at + 1]) - max(begin, self.begins[at])
            if seconds > 0:
                yield self.lanes[at], seconds
            at += 1


def moved(spans, item, model, rates):
    """Bytes that the item's lane moves in its time by a model."""
    lane, begin, end = item
    return sum(seconds * model(rates, lanes | {lane})[lane] for lanes, seconds in spans.within(begin, end))


class Timeline:
    """Planned and measured items of the three lanes that use host memory, and the bytes of each item. A copy's latency,
    which moves nothing, is not in its item."""

    def __init__(self, rows, rates, latency):
        gate = next(row for row in rows if row["kind"] == "gate")
        rows = [row for row in rows if row["lane"] in LANES]
        self.step_seconds = 1e-6 * float(gate["end"])

        def items(begin, end):
            for row in rows:
                ends = 1e-6 * float(row[end])
                yield row["lane"], min(1e-6 * float(row[begin]) + latency[row["lane"]], ends), ends

        self.items = list(items("begin", "end"))
        planned = list(items("planned_begin", "planned_end"))
        spans = Spans(planned, 1e-6 * float(gate["planned_end"]))
        self.bytes = [moved(spans, item, shared, rates) for item in planned]
        self.spans = Spans(self.items, self.step_seconds)

    def measured(self):
        """{lanes that ran together: (seconds, {lane: bytes per second})}; an item's bytes are spread evenly over its time."""
        seconds, by_lane = defaultdict(float), defaultdict(lambda: defaultdict(float))
        for lanes, span in self.spans.within(0, self.step_seconds):
            seconds[lanes] += span
        for (lane, begin, end), count in zip(self.items, self.bytes):
            for lanes, span in self.spans.within(begin, end):
                by_lane[lanes][lane] += count * span / (end - begin)
        return {lanes: (seconds[lanes], {lane: of / seconds[lanes] for lane, of in by_lane[lanes].items()})
                for lanes in sorted(by_lane, key=seconds.get, reverse=True) if seconds[lanes] >= LEAST_SECONDS}

    def busy(self, lane):
        return sum(end - begin for of, begin, end in self.items if of == lane)

    def replayed(self, lane, model, rates):
        """Seconds that the lane would be busy, at the mean of the rates that the model has for it in its time."""
        done = sum(moved(self.spans, item, model, rates) for item in self.items if item[0] == lane)
        return self.busy(lane) * self.bytes_of(lane) / done if done > 0 else math.inf

    def bytes_of(self, lane):
        return sum(count for (of, _, _), count in zip(self.items, self.bytes) if of == lane)


def own_rates(measured, rates):
    """Rates of the timeline itself; where lanes never ran so, those given."""
    found = {}
    for lane in LANES:
        if frozenset({lane}) in measured:
            found[lane] = measured[frozenset({lane})][1][lane]
    both = measured.get(frozenset({"h2d", "d2h"}))
    for lane in ("h2d", "d2h"):
        found[f"{lane}_both"] = min(both[1][lane] if both else getattr(rates, f"{lane}_both"), found.get(lane, rates.h2d))
    return replace(rates, **found, total=max(sum(of.values()) for _, of in measured.values()))


def text_of(rates):
    return (f"in {rates.h2d / 1e9:.1f}, out {rates.d2h / 1e9:.1f}, beside each other {rates.h2d_both / 1e9:.1f} and "
            f"{rates.d2h_both / 1e9:.1f}, updates {rates.host / 1e9:.1f}, in all {rates.total / 1e9:.1f} GB/s")


def report(name, timeline, rates_by_name):
    measured = timeline.measured()
    count = {lane: timeline.bytes_of(lane) / 1e9 for lane in LANES}
    print(f"## {name}\n{1e3 * timeline.step_seconds:.1f} ms a step, in {count['h2d']:.2f} GB, out {count['d2h']:.2f} GB, "
          f"updates {count['host']:.2f} GB\n\n| lanes that run together | ms | in GB/s | out | updates | in all |\n|---|---|---|---|---|---|")
    for lanes, (seconds, of) in measured.items():
        cells = " | ".join(f"{of[lane] / 1e9:.1f}" if lane in of else "-" for lane in LANES)
        print(f"| {' + '.join(lane for lane in LANES if lane in lanes)} | {1e3 * seconds:.1f} | {cells} | {sum(of.values()) / 1e9:.1f} |")
    for what, rates in rates_by_name.items():
        print(f"\nBy {what}: {text_of(rates)}\n\n| model | h2d busy, ms | d2h | host | errors |\n|---|---|---|---|---|")
        print(f"| measured | {' | '.join(f'{1e3 * timeline.busy(lane):.1f}' for lane in LANES)} | |")
        for word, model in MODELS.items():
            of = {lane: (timeline.replayed(lane, model, rates), timeline.busy(lane)) for lane in LANES}
            errors = sum(abs(a - b) for a, b in of.values()) / sum(b for _, b in of.values())
            print(f"| {word} | {' | '.join(f'{1e3 * a:.1f} ({100 * (a / b - 1):+.1f} %)' for a, b in of.values())} | {100 * errors:.1f} % |")
    print()


def rows_of(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="TIMELINE MACHINE")
    parser.add_argument("--rate", action="append", default=[], metavar="NAME=GB/s")
    given = parser.parse_args()
    if len(given.files) not in (0, 2):
        parser.error("give a timeline and the machine file that its plan was made for, or neither")
    names = {"in": "h2d", "out": "d2h", "in_both": "h2d_both", "out_both": "d2h_both", "host": "host", "total": "total"}
    try:
        given_rates = {names[name]: 1e9 * float(value) for name, value in (word.split("=") for word in given.rate)}
    except (KeyError, ValueError):
        parser.error(f"--rate is NAME=GB/s; the names are {', '.join(names)}")
    for timeline_file, machine_file in [tuple(given.files)] if given.files else RECORDED:
        rates, latency = machine_rates(json.loads(machine_file.read_text(encoding="utf-8")))
        timeline = Timeline(rows_of(timeline_file), rates, latency)
        by_name = {"the machine file": rates, "the timeline itself": own_rates(timeline.measured(), rates)}
        if given_rates:
            by_name["the given rates"] = replace(rates, **given_rates)
        report(f"{timeline_file.parent.name}/{timeline_file.name}", timeline, by_name)


if __name__ == "__main__":
    main()
