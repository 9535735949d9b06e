"""What one process's words amount to."""

import json
import re
import statistics

from ballast import SLACK
from cases import LEARNING, LEAST_COUNTED, LOSS_STEP, SHORT_WARM_UP, WARM_UP

# Only of whole words, for a traceback names many things.
OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|"
    r"CUBLAS_STATUS_ALLOC_FAILED|too small; the smallest that works|"
    r"of the card are free|memory ran out",
    re.IGNORECASE,
)
RAN, FITS_NOT, FAILED, STOPPED = "ran", "does not fit", "failed", "stopped"
AGAIN = "again"
ABSENT, NO_CARD, SKIPPED = "absent", "no card", "skipped"


def events_in(lines):
    """The objects with an "event" among a program's lines; anything else it prints is passed over."""
    found = []
    for line in lines:
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if isinstance(item, dict) and isinstance(item.get("event"), str):
            found.append(item)
    return found


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def again(events):
    """The micro-batch that a process ended to have tried by another; None: it did not."""
    return next((event.get("micro_batch") for event in of_kind(events, AGAIN)), None)


def is_step(event):
    return (
        isinstance(event.get("loss"), (int, float))
        and isinstance(event.get("seconds"), (int, float))
        and event["seconds"] > 0
    )


def steps_of(events):
    return [event for event in of_kind(events, "step") if is_step(event)]


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def status_of(done, events, steps):
    """(status, why)."""
    for kind in (ABSENT, NO_CARD, FITS_NOT, FAILED):
        for event in of_kind(events, kind):
            reached = f"reached: {event['reached']}; " if event.get("reached") else ""
            return kind, reached + str(event.get("message", ""))[:1000]
    if done["stopped"]:
        return STOPPED, f"at its time limit, after {len(steps)} steps"
    if done["code"] == 0 and steps:
        return RAN, ""
    if OUT_OF_MEMORY.search(done["errors"]):
        return FITS_NOT, last_line(done["errors"])
    if done["code"] == 0:
        return FAILED, "it printed no step"
    if done["code"] < 0:
        return (
            FAILED,
            f"signal {-done['code']} ended it (9: perhaps the host's memory ran out) {last_line(done['errors'])}",
        )
    return FAILED, f"exit code {done['code']}: {last_line(done['errors'])}"


def rate(tokens, steps):
    """Tokens per second of the median step that counts; None without one."""
    seconds = [step["seconds"] for step in counted(steps)]
    return tokens / statistics.median(seconds) if seconds else None


def warm_up_of(steps):
    """How many first steps do not count: fewer where the process had no time for more."""
    return WARM_UP if len(steps) >= WARM_UP + LEAST_COUNTED else SHORT_WARM_UP


def counted(steps):
    """The steps that the rate is taken from: not the first ones, nor those before a smaller micro-batch was needed."""
    return [step for step in steps[warm_up_of(steps) :] if step.get("micro_batch") == steps[-1].get("micro_batch")]


def clipped_of(steps):
    """(counted steps whose gradients were clipped, counted steps whose norm is known)."""
    norms = [step["norm"] for step in counted(steps) if isinstance(step.get("norm"), (int, float))]
    return sum(norm > LEARNING["clip"] for norm in norms), len(norms)


def bytes_above(case, peaks):
    """Of the card, what a process had beyond the case's memory: then the ballast did not hold the rest."""
    return max(0, peaks.get("device_bytes", 0) - case.memory - SLACK) if case.memory else 0


def loss_at(steps, number=LOSS_STEP):
    return steps[number - 1]["loss"] if len(steps) >= number else None


def result_of(job, done, events):
    """The line of contest.jsonl for one process."""
    steps = steps_of(events)
    status, why = status_of(done, events, steps)
    setup = {
        key: value
        for event in of_kind(events, "setup") + of_kind(events, "peaks")
        for key, value in event.items()
        if key != "event"
    }
    attempts = [event.get("micro_batch") for event in of_kind(events, "attempt")]
    return {
        "case": job.case.name,
        "peer": job.peer,
        "round": job.round,
        "status": status,
        "why": why,
        "tokens_per_second": rate(job.case.tokens, steps),
        "counted_steps": len(counted(steps)),
        "warm_up_steps": warm_up_of(steps),
        "clipped_steps": clipped_of(steps),
        f"loss_at_step_{LOSS_STEP}": loss_at(steps),
        "micro_batch": attempts[-1] if attempts else None,
        "attempts": attempts,
        "losses": [step["loss"] for step in steps],
        "norms": [step.get("norm") for step in steps],
        "step_seconds": [step["seconds"] for step in steps],
        "memory": done["peaks"],
        "bytes_above": bytes_above(job.case, done["peaks"]),
        "program": setup,
        "seconds": done["seconds"],
        "code": done["code"],
        "errors": done["errors"] if status in (FAILED, STOPPED) else "",
    }


def skipped(job, why):
    return {"case": job.case.name, "peer": job.peer, "round": job.round, "status": SKIPPED, "why": why}
