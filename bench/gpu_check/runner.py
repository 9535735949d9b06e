"""Runner: runs commands one after another under one deadline, and keeps what they say in a log."""

import os
import signal
import subprocess
import time

from programs import surroundings

LONGEST_TEXT = 256 << 10  # characters of one command in the log: of a longer output its begin and its end are kept


GRACE_SECONDS = 10  # from the request to end to the end by force: a program then ends what it has started itself


def shortened(text, most=LONGEST_TEXT):
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


class Runner:
    def __init__(self, log, deadline, libraries=()):
        self.log = log
        self.deadline = deadline
        self.environment = surroundings(libraries)

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        print(text, flush=True)
        self.note(text + "\n")

    def note(self, text):
        self.log.write(text)
        self.log.flush()

    def run(self, command, most_seconds=120, environment=None, surrounded=True):
        """{"command", "code", "seconds", "output", "errors"}; code None: it ran out of time. `environment` is added to
        what the tree's programs need or, with surrounded=False (a program that is not of the tree), to this process'
        own."""
        command = [str(word) for word in command]
        given = environment or {}
        self.note(f"\n$ {' '.join([*(f'{k}={v}' for k, v in given.items()), *command])}\n")
        begin = time.monotonic()
        limit = max(1.0, min(most_seconds, self.left()))
        base = self.environment if surrounded else dict(os.environ)
        code, output, errors = finish(command, {**base, **given}, limit)
        seconds = time.monotonic() - begin
        self.note(f"{shortened(output)}{shortened(errors)}\n[code {code}, {seconds:.2f} s]\n")
        return {"command": command, "code": code, "seconds": seconds, "output": output, "errors": errors}


def finish(command, environment, limit):
    """(code, output, errors) of a command that has so many seconds; what it started ends with it."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, process_group=0)
    except OSError as error:
        return 127, "", str(error)
    try:
        output, errors = process.communicate(timeout=limit)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        output, errors = ended(process)
        return None, output, errors + f"\nstopped after {limit:.0f} s"


def ended(process):
    """(output, errors) of a process that is asked to end, then made to, and its group with it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        words = process.communicate(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        words = None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return words or process.communicate()
