"""Prints where the time of .ci/run went: its sections, the slowest compile steps and the slowest tests.

    table.py SECTIONS BUILD…

SECTIONS has a line for each section: clock seconds, processor seconds, name, with tabs between. BUILD is a build folder,
whose compile steps are read from ninja's log and whose tests from the log that ctest wrote last. Ninja and ctest know
seconds of the clock alone, while as many jobs run as the machine has cores.
"""

import re
import sys
from pathlib import Path


def compile_steps(build):
    """(seconds, build, output) of each command of ninja, its last run where it ran several times."""
    commands = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        if not line.startswith("#"):
            begin, end, _, output, command = line.split("\t")
            commands[command] = ((int(end) - int(begin)) / 1000, build.name, output)
    return list(commands.values())


def tests(build):
    """(seconds, build, test) of each test of ctest's last run."""
    log = build / "Testing/Temporary/LastTest.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    names = re.findall(r"^\d+/\d+ Test: (.*)$", text, re.MULTILINE)
    seconds = re.findall(r"^Test time = +([\d.]+) sec$", text, re.MULTILINE)
    return [(float(s), build.name, name) for name, s in zip(names, seconds)]


def print_rows(title, rows):
    print(f"\n{title}")
    for seconds, build, name in rows:
        print(f"{seconds:8.1f}  {build:8}  {name}")


def main(sections, *folders):
    builds = [Path(folder) for folder in folders if (Path(folder) / ".ninja_log").exists()]
    rows = [line.split("\t") for line in Path(sections).read_text().splitlines()]
    print("\n   clock  processor  section")
    for clock, processor, name in rows:
        print(f"{float(clock):8.0f}  {float(processor):9.0f}  {name}")
    print(f"{sum(float(r[0]) for r in rows):8.0f}  {sum(float(r[1]) for r in rows):9.0f}  all")

    steps = [step for build in builds for step in compile_steps(build)]
    ran = [test for build in builds for test in tests(build)]
    for build in builds:
        for what, all_of_them in [("commands of ninja", steps), ("tests", ran)]:
            own = [row[0] for row in all_of_them if row[1] == build.name]
            print(f"{sum(own):8.0f}             {build.name}: {len(own):,} {what}")
    print_rows("Slowest compile steps, in seconds", sorted(steps, reverse=True)[:20])
    print_rows("Slowest tests, in seconds", sorted(ran, reverse=True)[:10])


if __name__ == "__main__":
    main(*sys.argv[1:])
