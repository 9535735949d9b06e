"""Text from a trained model: python -m stowage.generate --model FOLDER "What is a stowage plan?"

The tokenizer and the chat template are those of the model's folder (transformers); `train_gpt --generate-ids` computes, on the CPU and in
the model's own type. Text is written as it comes. Exit code: 0; 2 for what the user can put right, as one line on standard error; 1
where train_gpt failed; 130 after Ctrl-C, SIGTERM, or where nobody reads the text any more. docs/generate.md says what a token costs.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unicodedata
import urllib.parse
import urllib.request
from pathlib import Path

INTERRUPTED = 130
DISTRIBUTION = "stowage-planner"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


class Unusable(Exception):
    """What the user can put right."""


class Failed(Exception):
    """The program ended with an error of its own: its code and its last line."""

    def __init__(self, code, line):
        super().__init__(line)
        self.code = code


def arguments(words):
    parser = argparse.ArgumentParser(prog="stowage.generate", description="Writes text from a trained model, on the CPU.")
    parser.add_argument("prompt", help="what to answer or to go on with; - for standard input")
    parser.add_argument("--model", required=True, metavar="FOLDER|CHECKPOINT",
                        help="a folder of Hugging Face's files, a checkpoint of train_gpt, or a folder of checkpoints: then the newest")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="the model's tokenizer, for a checkpoint; else it is in the model's folder")
    parser.add_argument("--raw", action="store_true", help="go on with the prompt as it is, without the chat template")
    parser.add_argument("--system", metavar="TEXT", help="the system's message, for the chat template")
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help="most tokens to write (512)")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="X", help="0 takes the likeliest token (0.8)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draws (1)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads; without it all cores")
    parser.add_argument("--programs", metavar="FOLDER", help="where train_gpt is; else in the tree that this was installed from, or on PATH")
    return parser.parse_args(words)


def built_trees():
    """The source trees that this package may belong to: where it lies, and where pip installed it from."""
    yield Path(__file__).resolve().parents[2]
    try:
        origin = json.loads(importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return
    url = urllib.parse.urlparse(origin.get("url", ""))
    if url.scheme == "file":
        yield Path(urllib.request.url2pathname(url.path))


def find_program(folder):
    """Returns the path of train_gpt."""
    places = [Path(folder), Path(folder) / "samples"] if folder else [tree / "build/release/samples" for tree in built_trees()]
    for place in places:
        if os.access(place / "train_gpt", os.X_OK) and (place / "train_gpt").is_file():
            return str(place / "train_gpt")
    found = None if folder else shutil.which("train_gpt")
    if found:
        return found
    where = f"--programs {folder}: train_gpt is not in it" if folder else "train_gpt is not found"
    raise Unusable(f"{where}; build it in Stowage's folder (cmake --preset release, then cmake --build --preset release --target train_gpt) and "
                   "give --programs build/release/samples")


def model_flags(path):
    """Returns the flags of train_gpt that name the model, and whether it is a checkpoint."""
    model = Path(path)
    if not model.exists():
        raise Unusable(f"--model {path}: there is no such folder")
    if (model / "state.json").is_file():
        return ["--resume", path], True
    if (model / "config.json").is_file():
        return ["--init", path], False
    if model.is_dir() and any(model.glob("step-*/state.json")):
        return ["--checkpoint", path], True
    raise Unusable(f"--model {path}: it has neither config.json, as a model's folder, nor state.json, as a checkpoint of train_gpt")


def tokenizer_folder(options):
    model = Path(options.model)
    for folder in [Path(options.tokenizer)] if options.tokenizer else [model, model.parent]:
        if any((folder / name).is_file() for name in TOKENIZER_FILES):
            return folder
    if options.tokenizer:
        raise Unusable(f"--tokenizer {options.tokenizer}: there is no tokenizer in it")
    raise Unusable(f"--model {options.model}: there is no tokenizer beside the model; name a folder that has the model's own by --tokenizer")


def load_tokenizer(folder):
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it computes nothing, so it needs no PyTorch
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise Unusable(f"transformers is missing ({error}): run pip install '.[data]' in Stowage's folder") from error
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for files that are missing or damaged
        raise Unusable(f"{folder}: the tokenizer does not load: {one_line(error)}") from error


def one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def encode(tokenizer, options, prompt):
    """Returns the prompt's ids: a conversation, where there is a template."""
    if options.raw or not tokenizer.chat_template:
        if options.system is not None:
            raise Unusable("--system: there is no chat template for it" if not options.raw else "--system and --raw: give one of them")
        ids = tokenizer(prompt)["input_ids"]
    else:
        messages = [{"role": "system", "content": options.system}] if options.system is not None else []
        messages.append({"role": "user", "content": prompt})
        try:
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        except Exception as error:  # a template is a program: it may raise anything
            raise Unusable(f"the chat template fails: {one_line(error)}; --raw leaves it out") from error
    if not ids:
        raise Unusable("the prompt is no token of this vocabulary: give another text")
    return ids


def end_ids(folder, tokenizer):
    """Returns the tokens that end a text, of the tokenizer's folder."""
    for name in ("generation_config.json", "config.json"):
        try:
            ids = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        ids = ids if isinstance(ids, list) else [ids]
        if ids and all(isinstance(token, int) for token in ids):
            return ids
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


class Stream:
    """Text of token after token, without a character that further tokens may complete."""

    def __init__(self, tokenizer):
        self._tokenizer, self._ids = tokenizer, []
        self._begin = self._end = 0  # tokens [begin, end) are written, and are decoded again for what joins them to the next

    def _decode(self, ids):
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _rest(self):
        return self._decode(self._ids[self._begin:])[len(self._decode(self._ids[self._begin:self._end])):]

    def add(self, token):
        self._ids.append(token)
        text = self._rest()
        if not text or text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self._begin, self._end = self._end, len(self._ids)
        return text

    def finish(self):
        return self._rest()


def shown(text):
    """Text for a terminal, which obeys control characters."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


def write(text):
    sys.stdout.write(shown(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def generated(command, ids):
    """Yields each id as the program makes it. Raises Failed. The program does not outlive this."""
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as program:
            try:
                try:
                    program.stdin.write(" ".join(map(str, ids)).encode())
                    program.stdin.close()
                except BrokenPipeError:
                    pass  # its own error says why
                for line in program.stdout:
                    yield int(line)
                code = program.wait()
            finally:
                program.kill()
        if code != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise Failed(code, (lines[-1] if lines else f"ended with code {code}").removeprefix("train_gpt: "))


def run(options):
    if options.max_tokens < 0:
        raise Unusable(f"--max-tokens {options.max_tokens}: give 0 or more")
    program = find_program(options.programs)
    flags, is_checkpoint = model_flags(options.model)
    folder = tokenizer_folder(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    tokenizer = load_tokenizer(folder)
    ids = encode(tokenizer, options, prompt)
    command = [program, *flags, "--generate-ids", "-", "--tokens", str(options.max_tokens), "--temperature", str(options.temperature),
               "--seed", str(options.seed)]
    if options.threads is not None:
        command += ["--threads", str(options.threads)]
    if is_checkpoint:
        command += ["--stop-ids", ",".join(map(str, end_ids(folder, tokenizer))) or "none"]
    stream = Stream(tokenizer)
    with contextlib.closing(generated(command, ids)) as tokens:
        for token in tokens:
            write(stream.add(token))
    write(stream.finish() + "\n")


def interrupt(signal_number, frame):
    raise KeyboardInterrupt


def main(words=None):
    options = arguments(words)
    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        run(options)
        return 0
    except Unusable as error:
        code, text = 2, str(error)
    except UnicodeDecodeError as error:
        code, text = 2, f"standard input is no UTF-8: {error}"
    except Failed as error:
        if error.code in (INTERRUPTED, -signal.SIGINT):
            return INTERRUPTED
        code, text = (2 if error.code == 2 else 1), str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        return INTERRUPTED
    except OSError as error:
        code, text = 1, f"the text cannot be written: {error.strerror}"
    print(f"stowage.generate: error: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
