"""python -m stowage.data against `tokenizers` alone: python3 against_tokenizers.py [CONVERSATIONS]

Both have two processes and the same conversations; `tokenizers` gets their texts, rendered beforehand, and drops its result. Seconds are
those of the clock and of both processes' cores, the tool's with its start, the reading and the writing."""

import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/tools/data")]
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import chat_folders  # noqa: E402
import chat_lines  # noqa: E402
from stowage.data._encode import load_tokenizer  # noqa: E402

ROUNDS, BATCH = 2, 256
encode = None


def encoded(texts):
    encode(texts, add_special_tokens=False)


def measured(work):
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main(count):
    global encode
    draw = random.Random(5)
    conversations = [chat_lines.conversation(draw) for _ in range(count)]
    words = [content for turns in conversations[:3000] for _, content in turns]
    with tempfile.TemporaryDirectory() as holder:
        data = os.path.join(holder, "a.jsonl")
        Path(data).write_text("".join(chat_lines.line_of(turns) + "\n" for turns in conversations), encoding="utf-8")
        print(f"{count} conversations, {os.path.getsize(data)} bytes")
        for name in ("chatml", "llama3", "qwen3"):
            folder = os.path.join(holder, name)
            chat_folders.write_folder(folder, name, words)
            tokenizer = load_tokenizer(folder)
            texts = [tokenizer.apply_chat_template(chat_lines.as_messages(turns), tokenize=False) for turns in conversations]
            batches = [texts[first:first + BATCH] for first in range(0, count, BATCH)]
            encode = tokenizer.backend_tokenizer.encode_batch

            def alone():
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    for _ in pool.imap(encoded, batches):
                        pass
                    pool.close()
                    pool.join()

            def tool():
                output = os.path.join(holder, "out")
                subprocess.run([sys.executable, "-m", "stowage.data", "--model", folder, "--data", data, "--sequence", "4096", "--output", output,
                                "--processes", "2"], check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
                tokens = json.loads(Path(output, "report.json").read_text(encoding="utf-8"))["tokens"]
                subprocess.run(["rm", "-r", output], check=True)
                return tokens

            for _ in range(ROUNDS):
                (alone_clock, alone_cores), (tool_clock, tool_cores) = measured(alone), measured(tool)
                print(f"{name:8}  tokenizers {alone_clock:6.1f} s, {alone_cores:6.1f} of cores   stowage.data {tool_clock:6.1f} s, {tool_cores:6.1f} of cores   "
                      f"ratio {tool_clock / alone_clock:.2f}, {tool_cores / alone_cores:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
