"""libstowage_plan.so by ctypes."""

import ctypes
import json
import os
import re
import threading
from pathlib import Path

from stowage._logits import CHUNK, in_chunks

STOPPED = 6
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


class Refused(ValueError):
    """A question or a trace that cannot be answered; says what is wrong and what to do."""


class _Text(ctypes.Structure):
    pass


_Text._fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_char)), ("bytes", ctypes.c_size_t),
                  ("next", ctypes.POINTER(_Text))]


def _load():
    # The environment names another build of the library, as tests do.
    path = os.environ.get("STOWAGE_PLAN_LIBRARY") or str(Path(__file__).resolve().parent / "libstowage_plan.so")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"stowage: {path} does not load ({error}): run `pip install .` in Stowage's folder; if that is "
                          "another package called stowage, remove it first") from error
    library.stowage_plan.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                     ctypes.POINTER(ctypes.POINTER(_Text))]
    library.stowage_text_free.argtypes = [ctypes.POINTER(_Text)]
    library.stowage_text_free.restype = None
    library.stowage_plan_stop.argtypes = [ctypes.c_int]
    library.stowage_plan_stop.restype = None
    for name in ("last_error", "version", "machines"):
        getattr(library, f"stowage_plan_{name}").restype = ctypes.c_char_p
    return library


_library = _load()
_running = threading.Lock()  # the flag that ends a plan is the process's


def version():
    return _library.stowage_plan_version().decode()


def machines():
    """The names that `machine` takes, beside "here", what `stowage calibrate` measured last, and the path of a file that it wrote."""
    return _library.stowage_plan_machines().decode().split()


def _bytes(name, memory):
    """Of an int, or a text such as "6GiB" or "512 MB"."""
    if memory is None or (isinstance(memory, int) and not isinstance(memory, bool)):
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", memory) if isinstance(memory, str) else None
    if match is None or match[2].upper() not in UNITS:
        raise Refused(f"{name}: {memory!r} is no size; give bytes, or a text such as '6GiB'")
    return int(float(match[1]) * UNITS[match[2].upper()])


def _machine(machine):
    if not isinstance(machine, (str, os.PathLike)):
        raise Refused(f"machine: {machine!r}; give a name of stowage.machines(), 'here', or the path of a file that `stowage calibrate` wrote")
    machine = os.fspath(machine)
    if machine.endswith(".json") or "/" in machine:
        try:
            return {"machine_file": Path(machine).read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"machine: {machine} cannot be read ({error}); give a file that `stowage calibrate` wrote") from error
    return {"machine": machine}


def _ask(trace, question):
    """The texts by name. Runs in a thread of its own, so that an interrupt ends it."""
    found, ended = {}, threading.Event()

    def run():
        answer = ctypes.POINTER(_Text)()
        try:
            found["status"] = _library.stowage_plan(trace, len(trace), json.dumps(question).encode(), ctypes.byref(answer))
            found["error"] = _library.stowage_plan_last_error().decode(errors="replace")
            text = answer
            while text:
                found[text.contents.name.decode()] = ctypes.string_at(text.contents.data, text.contents.bytes).decode()
                text = text.contents.next
            _library.stowage_text_free(answer)
        finally:
            ended.set()

    with _running:
        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
            while not ended.wait(0.1):  # an interrupt is looked at between two waits
                pass
        except BaseException:
            _library.stowage_plan_stop(1)
            while thread.is_alive() and not ended.wait(0.1):
                pass
            _library.stowage_plan_stop(0)
            raise
    status, error = found.pop("status"), found.pop("error")
    if status == 1:
        raise Refused(error)
    if status == 2:
        raise MemoryError(error)
    if status != 0:
        raise RuntimeError(error)
    return found


class Answer:
    """What the planner says of one step under one budget. Printed, it is what `stowage plan` prints."""

    def __init__(self, trace, question, first_lines=()):
        self._trace, self._question = trace, question
        texts = _ask(trace, {**question, "return": ["answer", "text", "plan"]})
        self.json = json.loads(texts["answer"])
        self.plan = texts.get("plan")  # JSON, for programs; None where the step does not fit
        self._text = "".join(f"{line}\n" for line in first_lines) + texts["text"]

    @property
    def fits(self):
        return self.json["feasible"]

    def report(self, path):
        """Writes the plan's page, one HTML file, to `path`."""
        texts = _ask(self._trace, {**self._question, "return": ["report"]})
        if "report" not in texts:
            raise Refused(f"report: the step does not fit; the smallest budget that works is {self.json['smallest_bytes']}")
        _write(path, texts["report"])

    def trace(self, path):
        """Writes the trace that was planned to `path`."""
        _write(path, self._trace.decode())

    def __str__(self):
        return self._text.rstrip("\n")

    def __repr__(self):
        return f"<stowage.Answer: {'fits' if self.fits else 'does not fit'}>"


def _write(path, text):
    """Whole or not at all."""
    path = Path(path)
    aside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def plan_trace(trace, machine="rtx4090", device_memory=None, host_memory=None, policy="auto", name=None):
    """Plans the step of a trace (docs/trace.md), or of a graph's JSON.

    trace: its text (str or bytes). machine: a name of machines(), "here", or the path of a file that
    `stowage calibrate` wrote.
    device_memory, host_memory: bytes, or a text such as "6GiB"; None: what the machine has. policy: as `stowage plan
    --policy`. name: of the step, for messages and the page. Returns an Answer, also where the step does not fit; raises
    Refused for a question or a trace that cannot be answered.
    """
    data = trace.encode() if isinstance(trace, str) else bytes(trace)
    question = {**_machine(machine), "device_memory": _bytes("device_memory", device_memory),
                "host_memory": _bytes("host_memory", host_memory), "policy": policy}
    if name is not None:
        question["name"] = name
    return Answer(data, question)


def _gib(count):
    return f"{count / 2**30:.2f} GiB"


def _logits_line(trace, question, op):
    """A line for a step that does not fit for its logits; "" for others."""
    found = in_chunks(trace, op)
    if found is None:
        return ""
    chunked, values, largest = found
    answer = json.loads(_ask(chunked, {**question, "return": ["answer"]})["answer"])
    return (f"logits        {op} holds the loss's own values, {values} of up to {_gib(largest)}; with a loss in chunks of "
            f"{CHUNK:,} tokens the smallest budget would be about {_gib(answer['minimum_device_bytes'])}\n")


def plan(model, batch, machine="rtx4090", device_memory=None, host_memory=None, policy="auto", clip=None, loss=None,
         optimizer=None, kernels="cpu"):
    """Plans a training step of a PyTorch model, forward, backward and AdamW, before anything of it runs.

    model: a torch.nn.Module on any one device, such as meta; nothing of it is allocated or changed. batch: what it takes: a
    tensor, a tuple or a mapping. loss: a function of the model's output and the batch that returns a scalar; None: the output
    is one, has one as `.loss`, or is a tuple whose first is one. optimizer: a torch.optim.Adam or AdamW, or its class; None:
    AdamW. clip: the norm to which gradients are clipped; None: they are not. kernels: "card" for dropout, and attention with
    dropout, by a card's fused kernels, which keep less; "cpu": as a run on the CPU has them. The others: as plan_trace.
    Returns an Answer, also where the step does not fit; raises Refused, with what to do, for a model that cannot be planned.
    """
    try:
        from stowage._capture import capture
    except ModuleNotFoundError as error:
        raise ImportError("stowage.plan needs PyTorch: pip install torch") from error
    lines = []
    if not getattr(model, "training", True):
        lines.append("mode          train(), though the model is in eval(): dropout and what else training has is counted")
    trace = capture(model, batch, clip, loss, optimizer, kernels).encode()
    question = {**_machine(machine), "device_memory": _bytes("device_memory", device_memory),
                "host_memory": _bytes("host_memory", host_memory), "policy": policy, "name": type(model).__name__}
    answer = Answer(trace, question, lines)
    if not answer.fits and answer.json["lacks"] == "device":
        answer._text += _logits_line(trace, question, answer.json["op"])
    if kernels == "cpu" and b'"aten.bernoulli_.' in trace:
        answer._text += ("dropout       its masks, and attention's scores beside it, are counted as a CPU writes them; a card's fused kernels "
                         "keep less: kernels=\"card\"\n")
    if answer.fits and answer.json["host_budget_bytes"] is None:
        answer._text = (f"host memory   {answer.json['host_bytes']} bytes; no limit of it was given (host_memory=)\n"
                        + answer._text)
    return answer


def offload(model, optimizer, batch, device_memory, host_memory=None, machine="rtx4090", loss=None, outputs=(), verify=False):
    """Makes training steps of the model run in the memory of a plan, forward and backward, with the bits that they have without it.

    model: a torch.nn.Module on the CPU; optimizer: its torch.optim.Adam or AdamW, which stays PyTorch's own and works on the
    host. batch: what the model takes: a tensor, a tuple or a mapping; its step is recorded, planned and tried here, and batches
    of other shapes where they come. device_memory, host_memory, machine: as stowage.plan; the arena, of the plan's bytes, is host
    memory. loss: a function of the model's output and the batch that returns a scalar: model(...) then returns that in training.
    outputs: names of the output's fields that are kept in training, beside the loss; they take host memory. verify: compares the bits
    of each operation that runs again in backward with those of its first time, and raises RuntimeError where they differ.
    Returns the same model and optimizer. Raises Refused, with what to do, for what it cannot run with these bits.
    """
    try:
        from stowage._offload import offloaded
    except ModuleNotFoundError as error:
        raise ImportError("stowage.offload needs PyTorch: pip install torch") from error
    question = {**_machine(machine), "device_memory": _bytes("device_memory", device_memory),
                "host_memory": _bytes("host_memory", host_memory), "policy": "auto", "name": type(model).__name__}
    return offloaded(model, optimizer, batch, question, loss, outputs, verify)
