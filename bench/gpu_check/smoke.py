"""The first stage, a minute at most: does everything load here, and does one step run?"""

import subprocess
from pathlib import Path

LARGEST_LOG = 4 << 20  # bytes of cuDNN's log that are kept
LDD_SECONDS = 30  # for one file, on a disk that has not been read yet


def elf_files(prefix):
    """Programs, modules and libraries of an unpacked tree."""
    folders = [prefix / "bin", prefix / "lib", prefix / "lib" / "stowage", prefix / "checks"]
    return [f for folder in folders if folder.is_dir() for f in sorted(folder.iterdir()) if f.is_file() and is_elf(f)]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def unresolved(file, environment):
    """What `ldd -r` does not find for a file: libraries, and symbols in them."""
    try:
        done = subprocess.run(["ldd", "-r", str(file)], env={**environment, "LC_ALL": "C"}, capture_output=True, text=True,
                              timeout=LDD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"ldd: {error}"]
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    bad = [line for line in lines if "not found" in line or "undefined symbol" in line]
    return bad or ([] if done.returncode == 0 or "statically linked" in done.stdout else lines[-3:])


def smoke(context):
    """`ldd -r` of the whole tree, a quick calibration, and one step of a small GPT with cuDNN's frontend telling what it
    does."""
    files = elf_files(context.programs.prefix)
    found = {str(f.relative_to(context.programs.prefix)): unresolved(f, context.runner.environment) for f in files}
    faults = {name: lines for name, lines in found.items() if lines}
    context.runner.say(f"ldd -r: {len(files)} files, {len(faults)} of them with something that is not found")
    for name, lines in faults.items():
        context.runner.note(f"{name}:\n  " + "\n  ".join(lines) + "\n")
    log = context.folder / "cudnn.log"
    calibrated = context.calibrate(quick=True)
    step = context.train("one step", context.sizes["smoke"], "--steps", 1, "--policy", "none",
                         environment={"CUDNN_FRONTEND_LOG_INFO": "1", "CUDNN_FRONTEND_LOG_FILE": str(log)})
    return {"resolve": {"files": len(files), "faults": faults}, "calibrate": calibrated, "step": step,
            "cudnn_log": kept(log)}


def kept(log):
    """Cuts a long log, and tells its name; None where nothing was written."""
    if not log.is_file() or log.stat().st_size == 0:
        return None
    with open(log, "r+b") as file:
        file.truncate(min(LARGEST_LOG, log.stat().st_size))
    return Path(log).name
