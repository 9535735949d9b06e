"""python -m stowage.data with transformers: python3 chat_test.py PACKAGE [TRAIN_GPT]"""

import contextlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PACKAGE = sys.argv[1]
TRAIN_GPT = sys.argv[2] if len(sys.argv) > 2 else None
sys.path.insert(0, PACKAGE)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    import jinja2  # noqa: F401
    import tokenizers  # noqa: F401
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import chat_folders  # noqa: E402
import chat_lines  # noqa: E402
from stowage.data import _encode  # noqa: E402
from stowage.data.__main__ import main  # noqa: E402

HOLDER = tempfile.TemporaryDirectory()
FOLDERS = {}  # by form: (path, tokenizer without special tokens, ids of these)


def folder(name, template=None):
    key = name if template is None else f"{name}-{len(FOLDERS)}"
    if key not in FOLDERS:
        form = chat_folders.FORMS[name]
        texts = [content for turns in chat_lines.forty(name, form.specials) if not chat_lines.spells(turns, form.specials) for _, content in turns]
        path = os.path.join(HOLDER.name, key)
        FOLDERS[key] = path, *chat_folders.write_folder(path, name, texts, template)
    return FOLDERS[key]


def encoded(path, lines, located=False, sequence=4096):
    """Returns the documents of lines as (ids, marks), and the Batch."""
    batch = _encode.Encoder(path, sequence, True, located).batch(list(enumerate(lines, 1)))
    documents, begin = [], 0
    for length in batch.lengths:
        documents.append((list(batch.tokens[begin:begin + length]), list(batch.marks[begin:begin + length])))
        begin += length
    return documents, batch


def expected(name, turns, pieces=None):
    """Returns ids and marks as chat_folders tells them."""
    _, plain, ids = folder(name)
    tokens, targets = chat_folders.expected(pieces or chat_folders.FORMS[name].pieces(turns), plain, ids)
    return tokens, [*targets[1:], 0]


def documents_in(path):
    """Yields (ids, marks) of the documents of a folder's shards, without the padding. Checks what TokenShards demands, and that a document
    has a target."""
    for file in sorted(Path(path).iterdir()):
        data = file.read_bytes()
        magic, version, count, sequence = struct.unpack_from("<4i", data)
        assert (magic, version, count % sequence, len(data)) == (20261128, 8, 0, 1024 + 9 * count)
        tokens = struct.unpack_from(f"<{count}i", data, 1024)
        begins = struct.unpack_from(f"<{count}i", data, 1024 + 4 * count)
        marks = data[1024 + 8 * count:]
        for first in range(0, count, sequence):
            starts = [i for i in range(sequence) if begins[first + i] == i]
            assert starts[0] == 0
            for start, end in zip(starts, [*starts[1:], sequence]):
                own = marks[first + start:first + end]
                assert set(begins[first + start:first + end]) == {start} and own[-1] == 0 and set(own) <= {0, 1}
                if 1 in own or end - start > 1:
                    assert 1 in own
                    yield list(tokens[first + start:first + end]), list(own)


class Forms(unittest.TestCase):
    """Forty conversations of each form."""

    def check(self, name):
        path, _, _ = folder(name)
        form = chat_folders.FORMS[name]
        conversations = chat_lines.forty(name, form.specials)
        documents, batch = encoded(path, [chat_lines.line_of(turns).encode() for turns in conversations])
        self.assertEqual((batch.bad, len(documents)), ([], 40))
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        compared = 0
        for turns, (ids, marks) in zip(conversations, documents):
            self.assertEqual((ids, marks), expected(name, turns), turns)
            if not chat_lines.spells(turns, form.specials):
                compared += 1
                self.assertEqual(ids, tokenizer.apply_chat_template(chat_lines.as_messages(turns), return_dict=False))
        self.assertEqual(compared, 30)
        return conversations, documents, tokenizer

    def test_chatml(self):
        self.check("chatml")

    def test_qwen3(self):
        conversations, _, _ = self.check("qwen3")
        self.assertTrue(any("</think>" in turns[-1][1] for turns in conversations))

    def test_llama3(self):
        self.check("llama3")

    def test_mistral(self):
        self.check("mistral")

    def test_marks_of_the_template(self):
        conversations, documents, tokenizer = self.check("generation")
        for turns, (_, marks) in list(zip(conversations, documents))[:3]:
            mask = tokenizer.apply_chat_template(chat_lines.as_messages(turns), return_dict=True, return_assistant_tokens_mask=True)["assistant_masks"]
            self.assertEqual(marks, [*mask[1:], 0])

    def test_contents_may_have_white_space_around(self):
        turns = [("user", "  the river "), ("assistant", " stone house\n")]
        for name in ("chatml", "llama3", "mistral"):
            (ids, marks), = encoded(folder(name)[0], [chat_lines.line_of(turns).encode()])[0]
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder(name)[0])
            self.assertEqual(ids, tokenizer.apply_chat_template(chat_lines.as_messages(turns), return_dict=False))
            learned = tokenizer.decode([ids[i + 1] for i, mark in enumerate(marks) if mark])
            self.assertEqual(learned.strip(), {"chatml": "stone house\n<|im_end|>", "llama3": "stone house<|eot_id|>",
                                               "mistral": "stone house\n</s>"}[name])

    def test_no_prefix_is_refused(self):
        path, _, _ = folder("chatml", chat_folders.COUNTED)
        turns = [("user", "the river"), ("assistant", "sees it"), ("user", "the stone"), ("assistant", "walks")]
        documents, batch = encoded(path, [chat_lines.line_of(turns[:2]).encode(), chat_lines.line_of(turns).encode()])
        self.assertEqual([number for number, _ in batch.bad], [1, 2])
        self.assertIn("before message 2 is no prefix", batch.bad[1][1])
        pieces = [chat_folders.Piece(piece.text[:-1] + "4\n", False) if isinstance(piece, chat_folders.Piece) and piece.text in ("user\n", "assistant\n")
                  else piece for piece in chat_folders.chatml(turns)]
        self.assertEqual(encoded(path, [chat_lines.line_of(turns).encode()], located=True)[0], [expected("chatml", turns, pieces)])

    def test_a_turn_without_an_end_is_counted(self):
        path, _, _ = folder("chatml", "{%- for m in messages -%}{{ m.role + ': ' + m.content + '\n' }}{%- endfor -%}"
                                      "{%- if add_generation_prompt -%}{{ 'assistant: ' }}{%- endif -%}")
        (ids, marks), = encoded(path, [chat_lines.line_of([("user", "the"), ("assistant", "old river")]).encode()])[0]
        _, plain, _ = folder("chatml")
        self.assertEqual(plain.decode([ids[i + 1] for i, mark in enumerate(marks) if mark]), " old river")


class Texts(unittest.TestCase):
    def test_are_targets_as_a_whole(self):
        line = json.dumps({"text": "the old river</s><|eot_id|>"}).encode()
        for name, begin, end in (("chatml", [], "<|im_end|>"), ("llama3", ["<|begin_of_text|>"], "<|eot_id|>"), ("mistral", ["<s>"], "</s>")):
            path, plain, ids = folder(name)
            if name == "mistral":
                plain = chat_folders.spelling_its_end(plain, merged=False)
                plain.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
            wanted = [*map(ids.get, begin), *plain.encode("the old river</s><|eot_id|>").ids, ids[end]]
            self.assertEqual(encoded(path, [line])[0], [(wanted, [1] * (len(wanted) - 1) + [0])], name)

    def test_a_prompt_speaks_through_the_template_or_stands_before(self):
        item = {"prompt": "the river", "completion": " sees"}
        turns = [("user", "the river"), ("assistant", " sees")]
        self.assertEqual(encoded(folder("llama3")[0], [json.dumps(item).encode()])[0], encoded(folder("llama3")[0], [chat_lines.line_of(turns).encode()])[0])
        path, plain, ids = folder("llama3", "{# none #}")
        config = json.loads(Path(path, "tokenizer_config.json").read_text(encoding="utf-8"))
        del config["chat_template"]
        Path(path, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        documents, batch = encoded(path, [json.dumps(item).encode(), chat_lines.line_of(turns).encode()])
        before, after = plain.encode("the river").ids, plain.encode(" sees").ids
        self.assertEqual(documents, [([ids["<|begin_of_text|>"], *before, *after, ids["<|eot_id|>"]],
                                      [0] * len(before) + [1] * (len(after) + 1) + [0])])
        self.assertIn("no chat template", batch.bad[0][1])

    def test_other_forms_say_the_same(self):
        lines = [chat_lines.line_of([("user", "the\n\nriver"), ("assistant", "sees")]),
                 json.dumps({"instruction": "the", "input": "river", "output": "sees"}),
                 json.dumps({"conversations": [{"from": "human", "value": "the\n\nriver"}, {"from": "gpt", "value": "sees"}]})]
        documents, _ = encoded(folder("chatml")[0], [line.encode() for line in lines])
        self.assertEqual(documents[1:], documents[:1] * 2)

    def test_too_long_ones_are_cut(self):
        turns = [("user", "a river " * 10), ("assistant", "the stone " * 10)]
        (ids, marks), = encoded(folder("chatml")[0], [chat_lines.line_of(turns).encode()])[0]
        first = marks.index(1)
        documents, batch = encoded(folder("chatml")[0], [chat_lines.line_of(turns).encode()], sequence=first + 2)
        self.assertEqual((documents, batch.counts["truncated"]), ([(ids[:first + 2], [0] * first + [1, 0])], 1))
        documents, batch = encoded(folder("chatml")[0], [chat_lines.line_of(turns).encode()], sequence=first + 1)
        self.assertEqual((documents, batch.counts["too long"]), ([], 1))


class Command(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.conversations = chat_lines.forty("chatml", chat_folders.QWEN_SPECIALS)
        self.data = self.folder / "a.jsonl"
        self.data.write_text("".join(chat_lines.line_of(turns) + "\n" for turns in self.conversations), encoding="utf-8")

    def run_main(self, output, *more, code=0, data=None, sequence="512"):
        said, wrong = io.StringIO(), io.StringIO()
        arguments = ["--model", folder("chatml")[0], "--data", str(data or self.data), "--sequence", sequence, "--output", str(self.folder / output),
                     "--processes", "1", *more]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            found = main(arguments)
        self.assertEqual(found, code, said.getvalue() + wrong.getvalue())
        return said.getvalue() if code == 0 else wrong.getvalue()

    def bytes_of(self, output):
        return {str(file.relative_to(self.folder / output)): file.read_bytes() for file in (self.folder / output).rglob("*") if file.is_file()}

    def test_writes_each_conversation_once(self):
        said = self.run_main("out", "--holdout", "7", "--shard-tokens", "2048", sequence="1024")
        report = json.loads((self.folder / "out/report.json").read_text(encoding="utf-8"))
        parts = {part: list(documents_in(self.folder / "out" / part)) for part in ("train", "holdout")}
        self.assertEqual([len(documents) for documents in parts.values()], [33, 7])
        self.assertEqual(sorted(parts["train"] + parts["holdout"]), sorted(expected("chatml", turns) for turns in self.conversations))
        self.assertIn("40: 40 written, of which 7 are held out", said)
        for part, documents in parts.items():
            row = report[part]
            self.assertEqual(row["tokens"], sum(len(ids) for ids, _ in documents))
            self.assertEqual(row["targets"], sum(map(sum, (marks for _, marks in documents))))
            self.assertEqual(row["wasted"], row["samples"] * 1024 - row["tokens"])
            self.assertEqual(row["shards"], len(list((self.folder / "out" / part).iterdir())))
        self.assertGreater(report["train"]["shards"], 1)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.jsonl", "out"])
        self.assertEqual(sorted(os.listdir(self.folder / "out")), ["holdout", "report.json", "train"])

    def test_is_a_function_of_its_seed_and_epoch(self):
        self.run_main("one", "--holdout", "0.2")
        self.run_main("three", "--holdout", "0.2", "--processes", "3")
        self.run_main("seed", "--holdout", "0.2", "--seed", "1")
        self.run_main("epoch", "--holdout", "0.2", "--epoch", "1")
        self.assertEqual(self.bytes_of("one"), self.bytes_of("three"))
        held = {name: sorted(documents_in(self.folder / name / "holdout")) for name in ("one", "seed", "epoch")}
        self.assertEqual(held["one"], held["epoch"])
        self.assertNotEqual(held["one"], held["seed"])
        self.assertNotEqual(self.bytes_of("one")["train/train_000000.bin"], self.bytes_of("epoch")["train/train_000000.bin"])

    def test_packs_or_not(self):
        self.run_main("off", "--packing", "off")
        report = json.loads((self.folder / "off/report.json").read_text(encoding="utf-8"))
        self.assertEqual(report["train"]["samples"], 40)
        self.assertEqual(len(list(documents_in(self.folder / "off/train"))), 40)

    def test_names_bad_lines(self):
        good = chat_lines.line_of(self.conversations[0])
        for line, why in ((b'{"text": "\xff"}', "ill-formed UTF-8"), (b"x" * 3000, "longer than --longest-line"), (b"{", "no JSON"), (b"[]", "no object"),
                          (b'{"messages": [{"role": "robot", "content": ""}]}', "unknown role"), (b'{"text": 1}', "is no text"),
                          (b'{"messages": []}', "no assistant")):
            data = self.folder / "bad.jsonl"
            data.write_bytes(good.encode() + b"\n\n" + line + b"\n" + good.encode())
            said = self.run_main("out", "--longest-line", "2KiB", data=data, code=2)
            self.assertRegex(said, rf"^stowage.data: error: {data}:3: .*{why}")
            self.assertEqual(sorted(os.listdir(self.folder)), ["a.jsonl", "bad.jsonl"])
            said = self.run_main("skipped", "--longest-line", "2KiB", "--skip-bad", data=data)
            self.assertIn("3: 2 written", said)
            self.assertIn("1 bad", said)
            report = json.loads((self.folder / "skipped/report.json").read_text(encoding="utf-8"))
            self.assertRegex(report["bad_lines"][0], rf"{data}:3: .*{why}")
            subprocess.run(["rm", "-r", self.folder / "skipped"], check=True)
        data.write_bytes(b"")
        self.assertRegex(self.run_main("out", data=data, code=2), "bad.jsonl:1: the file is empty")

    def test_refuses_what_cannot_be_done(self):
        (self.folder / "there").mkdir()
        (self.folder / "there/a").touch()
        self.assertIn("is there already", self.run_main("there", code=2))
        self.assertIn("leaves none of 40", self.run_main("out", "--holdout", "40", code=2))
        self.assertIn("is none", self.run_main("out", "--holdout", "0.001", code=2))
        self.assertIn("nowhere", self.run_main("out", data="nowhere", code=2))
        self.assertIn("none has anything to learn", self.run_main("out", "--too-long", "leave-out", sequence="2", code=2))
        self.assertIn("is no folder", self.run_main("out", "--model", "nowhere", code=2))
        self.assertIn("does not load", self.run_main("out", "--model", str(self.folder / "there"), code=2))
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.jsonl", "there"])

    @unittest.skipUnless(TRAIN_GPT, "no train_gpt was given")
    def test_is_what_train_gpt_reads(self):
        chat_folders.write_folder(self.folder / "small", "chatml", ["the river"], vocabulary=290)  # of the model's 300 tokens
        self.data.write_text("".join(chat_lines.line_of([("user", "a river"), ("assistant", "the " * (number % 8))]) + "\n" for number in range(20)),
                             encoding="utf-8")
        self.run_main("out", "--model", str(self.folder / "small"), "--holdout", "5", sequence="64")
        report = json.loads((self.folder / "out/report.json").read_text(encoding="utf-8"))
        model = Path(__file__).parents[2] / "fixtures/model_files/llama"
        done = subprocess.run([TRAIN_GPT, "--data", self.folder / "out/train", "--evaluation-data", self.folder / "out/holdout", "--init", model,
                               "--sequence", "64", "--batch", "2", "--device", "simulated", "--steps", "2", "--evaluate-every", "2"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"over {report['holdout']['targets']} tokens not trained on", done.stdout)

    def test_leaves_nothing_when_interrupted(self):
        self.data.write_text((chat_lines.line_of(self.conversations[0]) + "\n") * 100_000, encoding="utf-8")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([sys.executable, "-B", "-m", "stowage.data", "--model", folder("chatml")[0], "--data", self.data, "--sequence", "512",
                                        "--output", self.folder / "out", "--processes", "2"], env={**os.environ, "PYTHONPATH": PACKAGE},
                                       stderr=subprocess.PIPE, text=True)
            until = time.monotonic() + 60
            while not list(self.folder.glob(".out.*/spool-*/tokens")) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, code, said)
            self.assertTrue(said.endswith("stowage.data: interrupted; nothing was written\n"), said)
            self.assertEqual(os.listdir(self.folder), ["a.jsonl"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
