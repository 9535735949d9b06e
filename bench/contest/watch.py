"""Runs one program under a time limit, and watches what memory it takes meanwhile."""

import os
import re
import signal
import subprocess
import threading
import time

EVERY_SECONDS = 0.05
GRACE_SECONDS = 8  # from the request to end to the end by force
ending = threading.Event()  # set: the running program is ended at once, and the steps that it made count
MOST_ERRORS = 4000  # characters of standard error that are kept


def first_number(path, pattern):
    """Bytes, of a line of /proc in kB; None where there is none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def highest_resident(pid):
    return first_number(f"/proc/{pid}/status", r"^VmHWM:\s+(\d+) kB")


def available():
    return first_number("/proc/meminfo", r"^MemAvailable:\s+(\d+) kB")


class Peaks:
    """The highest values of what is sampled. Bytes; what cannot be known is left out."""

    def __init__(self, pid, nvml):
        self.pid, self.nvml = pid, nvml
        self.found = {}
        self.begin_available = available()
        self.begin_used = nvml.memory()["used"] if nvml else None

    def add(self, name, value):
        if value is not None:
            self.found[name] = max(value, self.found.get(name, 0))

    def sample(self):
        self.add("host_resident", highest_resident(self.pid))
        now = available()
        if now is not None and self.begin_available is not None:
            self.add("host_machine", self.begin_available - now)
        if self.nvml:
            used = self.nvml.memory()["used"]
            self.add("card_used", used)
            self.add("device_bytes", used - self.begin_used)
            self.add("process_device_bytes", self.nvml.used_by(self.pid))


def together(before, after):
    """What `run` returned of a process and of the one that took its place."""
    names = {**before["peaks"], **after["peaks"]}
    peaks = {name: max(done["peaks"].get(name, 0) for done in (before, after)) for name in names}
    return {**after, "peaks": peaks, "seconds": before["seconds"] + after["seconds"]}


def collect(stream, into, most=None):
    """Reads to the end in a thread of its own."""

    def read():
        for line in stream:
            into.append(line)
            if most and sum(map(len, into)) > most:
                del into[: len(into) // 2]

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def signal_group(process, number):
    try:
        os.killpg(process.pid, number)  # the group of the session that it leads
    except ProcessLookupError:
        pass


def wait_and_watch(process, peaks, limit, grace):
    """Whether it was ended. Asks it to end `grace` seconds before the limit, for some then write what they have."""
    begin, asked, killed = time.monotonic(), False, False
    while process.poll() is None:
        peaks.sample()
        past = time.monotonic() - begin
        if (past > limit or ending.is_set()) and not killed:
            signal_group(process, signal.SIGKILL)
            killed = True
        elif past > limit - grace and not asked:
            signal_group(process, signal.SIGTERM)
            asked = True
        time.sleep(EVERY_SECONDS)
    return asked or killed


def run(command, limit, environment=None, nvml=None, grace=GRACE_SECONDS):
    """{"code", "stopped", "seconds", "output": lines, "errors": the end of standard error, "peaks"}. code is -N where
    signal N ended it, 127 where it could not be started; `stopped`: this function ended it."""
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return {"code": 127, "stopped": False, "seconds": 0.0, "output": [], "errors": str(error), "peaks": {}}
    output, errors = [], []
    threads = [collect(process.stdout, output), collect(process.stderr, errors, 4 * MOST_ERRORS)]
    try:
        peaks = Peaks(process.pid, nvml)
        stopped = wait_and_watch(process, peaks, limit, min(grace, limit / 2))
    finally:
        signal_group(process, signal.SIGKILL)  # what it has started and left behind
        process.wait()
    for thread, stream in zip(threads, (process.stdout, process.stderr)):
        thread.join(timeout=5)
        if not thread.is_alive():  # else a process that left the group still has it
            stream.close()
    return {
        "code": process.returncode,
        "stopped": stopped,
        "seconds": time.monotonic() - begin,
        "output": output,
        "errors": "".join(errors)[-MOST_ERRORS:],
        "peaks": peaks.found,
    }
