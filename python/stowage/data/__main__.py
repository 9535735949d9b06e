"""python -m stowage.data: conversations and texts to shards of packed samples (docs/data.md)."""

import argparse
import os
import re
import signal
import sys

from stowage.data import _run
from stowage.data._conversations import Unusable
from stowage.data._shards import MOST_TOKENS, require_little_endian

SUFFIXES = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def whole(least, most):
    def parsed(text):
        if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} to {most}")
        return int(text)
    return parsed


def size(text):
    found = re.fullmatch(r"(\d{1,12})\s*([KMG]iB)?", text)
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; give bytes, or a size such as 16MiB")
    return min(int(found[1]) * SUFFIXES[(found[2] or "").upper()], 2**40)


def number_or_fraction(text):
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    if not re.fullmatch(r"0?\.\d{1,18}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number of conversations, such as 500, nor a fraction below 1, such as 0.02")
    return float(text)


def parser():
    all_cores = len(os.sched_getaffinity(0))
    parsed = argparse.ArgumentParser(prog="stowage.data", description="Makes token shards of conversations and texts, for train_gpt --data.")
    add = parsed.add_argument
    add("--model", required=True, metavar="FOLDER", help="the tokenizer and its chat template, as Hugging Face has them; weights need not be there")
    add("--data", required=True, nargs="+", metavar="FILE", help="JSONL: messages, conversations, prompt and completion, instruction and output, or text")
    add("--sequence", required=True, type=whole(2, 1 << 20), metavar="N", help="tokens of a sample")
    add("--output", required=True, metavar="DIR", help="a new folder, for train/*.bin, holdout/*.bin and report.json")
    add("--packing", choices=("first-fit", "off"), default="first-fit", help="several documents to a sample (default), or one")
    add("--holdout", type=number_or_fraction, default=0, metavar="N", help="conversations kept for evaluation: a number, or a fraction such as 0.02")
    add("--too-long", choices=("truncate", "leave-out"), default="truncate", help="what is done with more than --sequence tokens")
    add("--turns", choices=("prefix", "located"), default="prefix",
        help="without {%% generation %%} in the template: refuse a turn whose text before it is no prefix of the whole text (default), or begin "
             "its target at its content")
    add("--seed", type=whole(0, 2**63 - 1), default=0, metavar="N", help="of what is held out, of the packing and the order")
    add("--epoch", type=whole(0, 2**63 - 1), default=0, metavar="N", help="another number packs the same conversations otherwise")
    add("--skip-bad", action="store_true", help="count bad lines and go on")
    add("--processes", type=whole(1, 4096), default=all_cores, metavar="N", help=f"(default {all_cores}, the cores here)")
    add("--shard-tokens", type=whole(1, MOST_TOKENS), default=64 << 20, metavar="N", help="tokens of a file at most (default 67108864)")
    add("--longest-line", type=size, default=16 << 20, metavar="SIZE", help="a longer line is bad (default 16MiB)")
    return parsed


def text_of(report):
    """Returns the report as text."""
    parts = [part for part in ("train", "holdout") if part in report]
    left = report["left_out"]
    held_out = f", of which {report['holdout']['conversations']:,} are held out" if "holdout" in report else ""
    kept = sum(report[part]["conversations"] for part in parts)
    wasted = sum(report[part]["wasted"] for part in parts)
    room = sum(report[part]["samples"] for part in parts) * report["sequence"]
    rows = [("conversations", f"{report['conversations']:,}: {kept:,} written{held_out}"),
            ("tokens", f"{report['tokens']:,}"),
            ("targets", f"{report['targets']:,}, {report['targets'] / report['tokens']:.1%} of the tokens ({report['targets_from']})"),
            ("truncated", f"{report['truncated']:,} to {report['sequence']:,} tokens"),
            ("left out", f"{sum(left.values()):,}: {left['nothing_to_learn']:,} with nothing to learn, {left['too_long']:,} too long, {left['bad']:,} bad"),
            ("wasted", f"{wasted:,} tokens of padding, {wasted / room:.2%} of {room // report['sequence']:,} samples")]
    if report["turns_without_end"]:
        rows.append(("no end", f"{report['turns_without_end']:,} turns end in no special token: the model learns no end of them"))
    return "".join(f"{name:<15}{value}\n" for name, value in rows)


def main(arguments=None):
    """Returns the exit code."""
    options = parser().parse_args(arguments)
    options.shard_tokens = max(options.shard_tokens, options.sequence)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # that there is no PyTorch
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        require_little_endian()
        for package in ("tokenizers", "transformers"):
            __import__(package)
        report = _run.run(options)
    except ImportError as error:
        if (error.name or "").split(".")[0] == "stowage":
            raise
        return refused(f"{error.name or error} is not installed: run `pip install '.[data]'` in Stowage's folder")
    except (Unusable, OSError) as error:
        return refused(str(error))
    except (KeyboardInterrupt, _run.Stopped) as stopped:
        print("stowage.data: interrupted; nothing was written", file=sys.stderr)
        return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)
    print(text_of(report), end="")
    return 0


def refused(message):
    print(f"stowage.data: error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    for each in _run.HANDLED:
        signal.signal(each, _run.stop)
    sys.exit(main())
