#!/usr/bin/env python3
"""One peer of PyTorch in one process: a JSON object with an "event" in each line of its output.

setup          versions and what is set
attempt        a micro-batch that is tried, in samples
step           step, loss, seconds, micro_batch, norm of the gradients before they were clipped
peaks          of memory, which PyTorch knows of
again          micro_batch that another process has to try, for this one cannot go on
absent, no card, does not fit, failed        why it ends, and what it had reached
"""

import argparse
import gc
import json
import os
import re
import sys
import time
import traceback
from types import SimpleNamespace

import cases
import gemini
import model_file
import outcome

REACHED = "start"


def reach(what):
    global REACHED
    REACHED = what


def emit(event, **fields):
    print("\n" + json.dumps({"event": event, **fields}), flush=True)


def is_out_of_memory(error):
    return isinstance(error, MemoryError) or bool(outcome.OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"))


def micro_batches(batch, largest):
    """Samples at once, largest first: what halving reaches and divides the batch."""
    while largest > 1:
        if batch % largest == 0:
            yield largest
        largest //= 2
    yield 1


def first_device_call(device):
    import torch

    reach("the first call of the device")
    if device == "cuda":
        try:
            torch.zeros(1).cuda()
        except Exception as error:  # a driver's absence has many types
            emit(
                "no card",
                reached=f"{REACHED}, behind imports and an empty model",
                message=str(error).split(". Please")[0],
            )
            sys.exit(0)


def synchronize(device):
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def one_step(strategy, data, micro_batch, device):
    """(loss, or None where memory ran out in a micro-batch; seconds)."""
    tokens, targets = data
    begin, share, losses = time.perf_counter(), micro_batch / len(tokens), []
    try:
        for first in range(0, len(tokens), micro_batch):
            part = slice(first, first + micro_batch)
            losses.append(strategy.forward_backward(tokens[part], targets[part], share))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
        return None, 0.0
    reach("an update")
    strategy.update()
    loss = sum(float(value) for value in losses) * share
    synchronize(device)
    return loss, time.perf_counter() - begin


def forget(device):
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def begin_again(micro_batch):
    """Ends a peer that cannot go on: contest.py starts another process with this micro-batch, which has its own minute."""
    emit(outcome.AGAIN, micro_batch=micro_batch)
    os._exit(0)  # what memory ran out in may not let go


def train(strategy, data, setting):
    left = list(micro_batches(setting.case.batch, setting.micro_batch))
    emit("attempt", micro_batch=left[0])
    done = 0
    while done < setting.steps and time.time() < setting.until:
        reach(f"step {done + 1} with {left[0]} samples at once")
        loss, seconds = one_step(strategy, data, left[0], setting.device)
        if loss is not None:
            done += 1
            emit("step", step=done, loss=loss, seconds=seconds, micro_batch=left[0], norm=strategy.norm())
            emit("peaks", **peaks(setting.device))
            continue
        left.pop(0)
        if not left:
            emit(outcome.FITS_NOT, reached=REACHED, message="out of memory with one sample at once")
            return
        if not strategy.recover():
            begin_again(left[0])
        forget(setting.device)
        emit("attempt", micro_batch=left[0])


def data_of(setting):
    import torch

    numbers = torch.tensor(model_file.read_tokens(setting.tokens), dtype=torch.long)
    shape = (setting.case.batch, setting.case.sequence)
    return numbers[:-1].view(shape).to(setting.device), numbers[1:].view(shape).to(setting.device)


def peaks(device):
    if device != "cuda":
        return {}
    import torch

    host = getattr(torch.cuda, "host_memory_stats", dict)()
    return {
        "torch_allocated_bytes": torch.cuda.max_memory_allocated(),
        "torch_reserved_bytes": torch.cuda.max_memory_reserved(),
        "pinned_bytes": host.get("allocated_bytes.peak", host.get("segment_bytes.peak")),
    }


def import_package(peer, device):
    """Versions of the package that the peer needs beside torch."""
    if peer.startswith("zero"):
        reach("import of deepspeed")
        import deepspeed

        return {"deepspeed": deepspeed.__version__}
    if peer.startswith("gemini"):
        reach("import of colossalai")
        return {"colossalai": gemini.import_colossalai(device).__version__}
    return {}


def run(given, setting):
    reach("import of torch")
    import torch

    from torch_model import empty_model
    from torch_strategies import STRATEGIES, TYPES

    torch.set_num_threads(given.threads)
    reach("an empty model")
    empty_model(setting.model, TYPES[setting.case.type])
    versions = {"torch": torch.__version__, **import_package(given.peer, setting.device)}
    first_device_call(setting.device)
    compiled = "model" if given.peer == "pytorch-compiled" else "blocks" if given.compile else None
    emit("setup", **versions, compiled=compiled, threads=torch.get_num_threads())
    reach("the model and its optimizer")
    strategy = STRATEGIES[given.peer](setting)
    emit("setup", attention_milliseconds=getattr(strategy, "attention", {}))
    reach("the data")
    train(strategy, data_of(setting), setting)


def explain(error):
    """The event that an error is."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        return outcome.ABSENT, message
    if is_out_of_memory(error):
        return outcome.FITS_NOT, message
    return outcome.FAILED, message


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--case", required=True, help="cases.Case as JSON")
    parser.add_argument("--files", required=True, help="folder that model_file.py wrote")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=cases.STEPS)
    parser.add_argument(
        "--until", type=float, default=time.time() + 60, help="no step begins after this second since 1970"
    )
    parser.add_argument("--micro-batch", type=int, help="samples at once, the largest that is tried")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    case = cases.Case(**json.loads(given.case))
    setting = SimpleNamespace(
        case=case,
        device=given.device,
        model=f"{given.files}/model",
        tokens=f"{given.files}/tokens.bin",
        steps=given.steps,
        until=given.until,
        compile=given.compile,
        learning=cases.LEARNING,
        micro_batch=given.micro_batch or case.batch,
    )
    try:
        run(given, setting)
    except Exception as error:  # every failure of a peer is a result
        traceback.print_exc()
        kind, message = explain(error)
        emit(kind, reached=REACHED, message=re.sub(r"\s+", " ", message)[:1000])
    if "torch" in sys.modules:
        leave()


def leave():
    """Ends the process group, if there is one, for else it complains."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
