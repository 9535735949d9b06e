"""From files to shards: lines are encoded by all processes, spooled in their order, and packed a shard at a time."""

import ctypes
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from array import array
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager

from stowage.data._conversations import Unusable, bytes_of, chunks
from stowage.data._encode import Encoder
from stowage.data._pack import packed, unpacked
from stowage.data._shards import Spool, write_shard

CHUNKS_IN_FLIGHT = 4  # for each process
MOST_DOCUMENTS = 1 << 20  # packed together
NAMED_BAD_LINES = 20  # in the report
HANDLED = signal.SIGINT, signal.SIGTERM
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG

_stopped = 0  # number of the signal that has asked for an end
_encoder = None  # the processes have it from their parent


class Stopped(BaseException):
    """A signal has asked for an end; its number."""


def stop(number, _frame):
    """Handles a signal. Python may drop an exception that is raised here, as in a callback around a fork, so the number is kept."""
    global _stopped
    _stopped = number
    raise Stopped(number)


def _require_going_on():
    """Raises Stopped if the exception of a signal was dropped."""
    if _stopped:
        raise Stopped(_stopped)


def _begin_process():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)


def _encode(lines):
    return _encoder.batch(lines)


class Progress:
    """A line on a terminal, or one every ten seconds in a file."""

    def __init__(self, total):
        self._total, self._done, self._conversations, self._tokens = total, 0, 0, 0
        self._begin = self._shown = time.monotonic()
        self._live = sys.stderr.isatty()

    def add(self, done, conversations, tokens):
        self._done += done
        self._conversations += conversations
        self._tokens += tokens
        now = time.monotonic()
        if now - self._shown >= (0.5 if self._live else 10):
            self._shown = now
            self._show(now)

    def _show(self, now):
        share = min(1, self._done / max(1, self._total))
        left = (now - self._begin) * (1 - share) / share if share > 0 else 0
        text = (f"{share:6.1%}  {self._conversations:,} conversations, {self._tokens:,} tokens, {self._tokens / (now - self._begin):,.0f} tokens/s, "
                f"{left:.0f} s left")
        print(f"\r\033[K{text}" if self._live else text, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def finish(self):
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def run(options):
    """Makes the folder `options.output`, whole or not at all, and returns the report. Raises Unusable."""
    global _encoder
    total = bytes_of(options.data)
    _require_free(options.output)
    _encoder = Encoder(options.model, options.sequence, options.too_long == "truncate", options.turns == "located")
    gc.freeze()  # the modules and the tokenizer stay: no collection looks at them again
    with _folder_made_whole(options.output) as made, tempfile.TemporaryDirectory(dir=made, prefix="spool-") as aside, closing(Spool(aside)) as spool:
        counts, bad = _encode_all(options, spool, Progress(total))
        if not spool.lengths:
            raise Unusable(f"of {counts['conversations']} conversations none has anything to learn; nothing was written")
        report = _report(options, counts, bad)
        held_out = _held_out(options, len(spool.lengths))
        documents = spool.finish()
        for part, chosen in (("train", 0), ("holdout", 1)):
            if chosen == 0 or options.holdout:
                of_part = array("q", (index for index, held in enumerate(held_out) if held == chosen))
                report[part] = _write(os.path.join(made, part), part, of_part, spool, documents, options)
        report["tokens"] = sum(report[part]["tokens"] for part in ("train", "holdout") if part in report)
        report["targets"] = sum(report[part]["targets"] for part in ("train", "holdout") if part in report)
        with open(os.path.join(made, "report.json"), "x", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    return report


def _require_free(output):
    if os.path.isdir(output) and not os.listdir(output):
        return
    if os.path.lexists(output):
        raise Unusable(f"--output {output} is there already; give the name of a new folder, or remove it")


@contextmanager
def _folder_made_whole(output):
    """Yields a folder beside `output`, which gets its name at the end; it is removed if anything fails before."""
    parent, name = os.path.split(os.path.abspath(output))
    try:
        os.makedirs(parent, exist_ok=True)
        made = tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=parent)
    except OSError as error:
        raise Unusable(f"--output {output} cannot be written: {error.strerror}") from error
    try:
        yield made
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o777 & ~mask)
        os.rename(made, output)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _encode_all(options, spool, progress):
    """Encodes all lines into the spool. Returns the counts, and the bad lines' messages. Raises Unusable at the first bad line unless they
    are skipped."""
    counts, messages = Counter(), []
    for chunk, batch in _batches(options):
        _require_going_on()
        for number, reason in batch.bad:
            message = f"{chunk.file}:{number}: {reason}"
            if not options.skip_bad:
                progress.finish()
                raise Unusable(f"{message} (--skip-bad leaves such lines out)")
            counts["bad"] += 1
            if len(messages) < NAMED_BAD_LINES:
                messages.append(message)
        counts.update(batch.counts)
        spool.append(batch.lengths, batch.tokens, batch.marks)
        progress.add(chunk.bytes_read, batch.counts["conversations"], len(batch.tokens))
    progress.finish()
    return counts, messages


def _batches(options):
    """Yields (Chunk without its lines, Batch) in the order of the lines; a bounded number of them is under way."""
    found = chunks(options.data, options.longest_line)
    if options.processes == 1:
        for chunk in found:
            yield chunk, _encode(chunk.lines)
        return
    # Signals wait while the executor works: a process that is being started would outlive an exception, and locks would stay taken.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    executor = ProcessPoolExecutor(options.processes, multiprocessing.get_context("fork"), _begin_process)
    try:
        for done in _in_order(executor, found, CHUNKS_IN_FLIGHT * options.processes):
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield done
            signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    except BrokenProcessPool as error:
        raise Unusable("a process of the tool was ended, as for want of memory; give fewer --processes or a smaller --longest-line") from error
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        executor.shutdown(wait=True, cancel_futures=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_order(executor, found, most):
    """Yields (Chunk without its lines, Batch), with at most `most` chunks under way."""
    pending = deque()
    for chunk in found:
        pending.append((chunk._replace(lines=None), executor.submit(_encode, chunk.lines)))
        if len(pending) >= most:
            done, batch = pending.popleft()
            yield done, batch.result()
    for done, batch in pending:
        yield done, batch.result()


def _held_out(options, count):
    """Returns a byte for each document: 1 if it is held out. Raises Unusable if none would be left."""
    number = round(options.holdout * count) if isinstance(options.holdout, float) else options.holdout
    if options.holdout and number == 0:
        raise Unusable(f"--holdout {options.holdout} of {count} conversations is none; give a larger fraction, or a number")
    if number >= count:
        raise Unusable(f"--holdout {options.holdout} leaves none of {count} conversations to train on")
    held_out = bytearray(count)
    for index in random.Random(f"{options.seed} holdout").sample(range(count), number):
        held_out[index] = 1
    return held_out


def _write(folder, part, chosen, spool, documents, options):
    """Writes the shards of the documents `chosen` and returns their row of the report."""
    os.mkdir(folder)
    most_samples = max(1, options.shard_tokens // options.sequence)
    shards = samples_in_all = targets = 0
    for number, window in enumerate(_windows(chosen, spool.lengths, options.shard_tokens)):
        _require_going_on()
        draw = random.Random(f"{options.seed} {options.epoch} {part} {number}")
        lengths = [spool.lengths[index] for index in window]
        samples = packed(lengths, options.sequence, draw) if options.packing == "first-fit" else unpacked(lengths, draw)
        targets += sum(documents[1][spool.places[index]:spool.places[index] + length].tobytes().count(1) for index, length in zip(window, lengths))
        samples_in_all += len(samples)
        for first in range(0, len(samples), most_samples):
            placed = [[(spool.places[window[index]], lengths[index]) for index in sample] for sample in samples[first:first + most_samples]]
            write_shard(os.path.join(folder, f"{part}_{shards:06}.bin"), placed, options.sequence, _encoder.padding, documents)
            shards += 1
    tokens = sum(spool.lengths[index] for index in chosen)
    return {"conversations": len(chosen), "tokens": tokens, "targets": targets, "samples": samples_in_all, "shards": shards,
            "wasted": samples_in_all * options.sequence - tokens}


def _windows(chosen, lengths, most_tokens):
    """Yields documents that follow one another and have the tokens of a shard."""
    window, tokens = [], 0
    for index in chosen:
        if window and (tokens + lengths[index] > most_tokens or len(window) >= MOST_DOCUMENTS):
            yield window
            window, tokens = [], 0
        window.append(index)
        tokens += lengths[index]
    if window:
        yield window


def _report(options, counts, bad):
    return {"conversations": counts["conversations"], "truncated": counts["truncated"],
            "left_out": {"nothing_to_learn": counts["nothing to learn"], "too_long": counts["too long"], "bad": counts["bad"]},
            "bad_lines": bad, "turns_without_end": counts["endless"], "targets_from": _encoder.targets_from,
            "sequence": options.sequence, "packing": options.packing, "seed": options.seed, "epoch": options.epoch,
            "padding": _encoder.padding}
