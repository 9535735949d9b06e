"""Stages that run the installed GoogleTest programs: as they are, and under compute-sanitizer."""

import json
import shutil
import tempfile
from pathlib import Path

TOOLKIT = "/usr/local/cuda/bin"
MOST_SECONDS = 80  # of one program, so that the seven of them end within a command of 560 s
REFUSAL = "Device not supported"  # of compute-sanitizer
NOTHING_CALLED = "terminated before first instrumented API call"  # its only complaint of a program that needs no card


def tests(context):
    return [run_test(context, test) for test in context.programs.test_programs()]


def run_test(context, test, prefix=(), most_seconds=MOST_SECONDS):
    """One program, and how many of its tests passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = context.runner.run([*prefix, test["path"], f"--gtest_output=json:{report}", *test.get("arguments", [])],
                                  most_seconds, test.get("environment"))
        counts = count_tests(json.loads(report.read_text(encoding="utf-8"))) if report.is_file() else {}
    return {"name": test["name"], "labels": test.get("labels", []), "code": done["code"],
            "seconds": done["seconds"], "passed": 0, "failed": 0, "skipped": 0, "failures": [], **counts,
            "refused": REFUSAL in done["output"] + done["errors"],
            "called_nothing": NOTHING_CALLED in done["output"] + done["errors"],
            "tail": "" if done["code"] == 0 else (done["output"] + done["errors"])[-2000:]}


def count_tests(report):
    counts = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("failures"):
                counts["failed"] += 1
                counts["failures"].append(f"{suite['name']}.{test['name']}")
            elif test.get("result") == "SKIPPED":
                counts["skipped"] += 1
            elif test.get("result") == "COMPLETED":
                counts["passed"] += 1
    return counts


def sanitizer(context):
    """memcheck on all tests, racecheck on the kernels', while time is left."""
    if not context.card:
        return {"skipped": "there is no card"}
    path = context.runner.environment.get("PATH", "") + ":" + TOOLKIT
    tool = shutil.which("compute-sanitizer", path=path)
    if tool is None:
        return {"tool": None, "runs": []}
    runs = []
    for check in ("memcheck", "racecheck"):
        for test in context.programs.test_programs():
            if "gpu" not in test.get("labels", []):
                continue
            if check == "racecheck" and "kernels" not in test["name"]:
                continue
            left = context.runner.left() - 5
            if left < 5:
                runs.append({"name": test["name"], "check": check, "code": None, "tail": "no time was left"})
                continue
            # A test that expects a call to fail is no fault.
            prefix = [tool, "--tool", check, "--error-exitcode", "86", "--report-api-errors", "no"]
            if check == "racecheck":
                prefix += ["--kernel-regex", "kns=stowage"]
            runs.append({**run_test(context, test, prefix, left), "check": check})
            if runs[-1]["refused"]:
                return {"tool": tool, "refused": REFUSAL, "runs": runs}
    return {"tool": tool, "runs": runs}
