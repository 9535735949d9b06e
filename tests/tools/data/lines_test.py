"""python -m stowage.data without transformers: lines, conversions, packing and shards. python3 lines_test.py PACKAGE"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from array import array
from pathlib import Path

PACKAGE = sys.argv[1]
sys.path.insert(0, PACKAGE)
from stowage.data import _conversations as conversations  # noqa: E402
from stowage.data import _pack, _shards  # noqa: E402
from stowage.data.__main__ import number_or_fraction, size, text_of  # noqa: E402


def parsed(item):
    return conversations.parse(json.dumps(item).encode())


class Forms(unittest.TestCase):
    def test_messages_stand_as_they_are(self):
        turns = [("system", "s"), ("user", "u"), ("assistant", "a")]
        item = {"messages": [{"role": role, "content": content, "id": 3} for role, content in turns], "text": "other"}
        self.assertEqual(parsed(item), conversations.Conversation(turns, True))

    def test_parts_of_text_are_one_text(self):
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        self.assertEqual(parsed({"messages": [{"role": "assistant", "content": parts}]}).turns, [("assistant", "ab")])

    def test_sharegpt(self):
        said = [("system", "s"), ("human", "h"), ("gpt", "g"), ("user", "u"), ("chatgpt", "c"), ("assistant", "a")]
        item = {"conversations": [{"from": role, "value": value} for role, value in said]}
        self.assertEqual([role for role, _ in parsed(item).turns], ["system", "user", "assistant", "user", "assistant", "assistant"])
        self.assertEqual([content for _, content in parsed(item).turns], list("shguca"))
        item = {"system": "be kind", "conversations": [{"from": "human", "value": "h"}, {"role": "assistant", "content": "a"}]}
        self.assertEqual(parsed(item).turns, [("system", "be kind"), ("user", "h"), ("assistant", "a")])

    def test_alpaca(self):
        item = {"instruction": "add", "input": "1 2", "output": "3", "text": "all of it"}
        self.assertEqual(parsed(item).turns, [("user", "add\n\n1 2"), ("assistant", "3")])
        self.assertEqual(parsed({**item, "input": ""}).turns[0], ("user", "add"))
        self.assertEqual(parsed({"instruction": "add", "output": "3", "system": "s"}).turns[0], ("system", "s"))

    def test_prompt_and_text(self):
        self.assertEqual(parsed({"prompt": "p", "completion": "c"}), conversations.Conversation([("user", "p"), ("assistant", "c")], False))
        self.assertEqual(parsed({"text": "t"}), conversations.Text("t"))

    def test_says_why_a_line_is_bad(self):
        answer = {"role": "assistant", "content": "a"}
        for item, why in (([1], "no object"), ({}, "fields of no known form"), ({"messages": {}}, "'messages' is no list"),
                          ({"messages": []}, "no assistant"), ({"messages": [{"role": "user", "content": "u"}]}, "no assistant"),
                          ({"messages": ["a"]}, "message 1 is no object"), ({"messages": [{"role": "tool", "content": "u"}, answer]}, 'unknown role "tool"'),
                          ({"messages": [{"role": ["x"], "content": "u"}]}, "unknown role"), ({"messages": [{"content": "u"}]}, "unknown role null"),
                          ({"conversations": [{"from": "bot", "value": "u"}]}, 'unknown role "bot"'),
                          ({"messages": [answer, {"role": "user", "content": None}]}, "content of message 2 is no text"),
                          ({"messages": [{"role": "assistant", "content": [{"type": "image"}]}]}, "is no text"),
                          ({"messages": [{**answer, "tool_calls": [1]}]}, "'tool_calls', which is not supported"),
                          ({"messages": [answer], "tools": [1]}, "tools"), ({"text": 3}, "the text is no text"),
                          ({"prompt": ["p"], "completion": "c"}, "the prompt is no text"), ({"text": "\ud800"}, "surrogate")):
            with self.subTest(item), self.assertRaisesRegex(conversations.Bad, why):
                parsed(item)
        for line, why in ((b'{"text": "\xff"}', "ill-formed UTF-8 at byte 11"), (b"{", "no JSON"), (b"[" * 100000, "no JSON"),
                          (b'{"text": ' + b"1" * 5000 + b"}", "no JSON|no text"), (b"", "the file is empty"),
                          (b'{"\\ud800\\u001b": 1}', r'no known form \("\\ud800\\u001b"\)'),
                          (b'{"text": ' + b'[{"type":"text","text":' * 400 + b'"t"' + b"}]" * 400 + b"}", "the text is no text")):
            with self.subTest(line[:20]), self.assertRaisesRegex(conversations.Bad, why):
                conversations.parse(line)


class Lines(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.file = os.path.join(holder.name, "a.jsonl")

    def lines_of(self, data, longest=100):
        Path(self.file).write_bytes(data)
        found = list(conversations.chunks([self.file], longest))
        self.assertEqual(sum(chunk.bytes_read for chunk in found), len(data))
        self.assertEqual(conversations.bytes_of([self.file]), len(data))
        return [line for chunk in found for line in chunk.lines]

    def test_are_numbered_without_empty_ones(self):
        self.assertEqual(self.lines_of(b"\xef\xbb\xbfa\n\n \r\nb"), [(1, b"a\n"), (4, b"b")])
        self.assertEqual(self.lines_of(b""), [(1, b"")])
        self.assertEqual(self.lines_of(b"\n\n"), [(1, b"")])

    def test_of_any_length_take_bounded_memory(self):
        self.assertEqual(self.lines_of(b"a\n" + b"x" * 101 + b"\nb\n"), [(1, b"a\n"), (2, None), (3, b"b\n")])
        self.assertEqual(self.lines_of(b"x" * 100 + b"\n" + b"y" * 3_000_000), [(1, b"x" * 100 + b"\n"), (2, None)])
        found = list(conversations.chunks([self.file], 1 << 30))
        self.assertEqual(len(found), 1)

    def test_come_a_bounded_number_at_a_time(self):
        Path(self.file).write_bytes(b"x\n" * 1000)
        found = list(conversations.chunks([self.file, self.file], 100))
        self.assertEqual(max(len(chunk.lines) for chunk in found), conversations.CHUNK_LINES)
        self.assertEqual([chunk.lines[0][0] for chunk in found], [1, 257, 513, 769] * 2)

    def test_need_their_file(self):
        with self.assertRaisesRegex(conversations.Unusable, "nowhere"):
            conversations.bytes_of(["nowhere"])


class Packing(unittest.TestCase):
    def test_puts_the_longest_first_into_the_first_with_room(self):
        lengths = array("i", [4, 8, 1, 4, 2, 1])
        samples = _pack._first_fit(sorted(range(6), key=lengths.__getitem__, reverse=True), lengths, 10)
        self.assertEqual(samples, [[1, 4], [0, 3, 2, 5]])

    def test_is_that_of_a_search_from_the_front(self):
        draw = random.Random(3)
        for _ in range(200):
            sequence = draw.randint(2, 30)
            lengths = [draw.randint(1, sequence) for _ in range(draw.randint(1, 40))]
            order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
            plain = []
            for index in order:
                first = next((each for each in plain if sum(lengths[i] for i in each) + lengths[index] <= sequence), None)
                if first is None:
                    plain.append(first := [])
                first.append(index)
            self.assertEqual(_pack._first_fit(order, lengths, sequence), plain)

    def test_loses_nothing_of_many(self):
        draw = random.Random(4)
        lengths = array("i", (min(4096, int(draw.lognormvariate(5.5, 1)) + 2) for _ in range(200_000)))
        samples = _pack.packed(lengths, 4096, random.Random(1))
        self.assertEqual(sorted(index for sample in samples for index in sample), list(range(200_000)))
        self.assertLessEqual(max(sum(lengths[index] for index in sample) for sample in samples), 4096)
        self.assertLessEqual(len(samples), -(-sum(lengths) // 4096) + 1)

    def test_is_a_function_of_the_seed(self):
        lengths = [random.Random(5).randint(1, 50) for _ in range(300)]
        made = [_pack.packed(lengths, 64, random.Random(seed)) for seed in (1, 1, 2)]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])
        self.assertEqual(sorted(_pack.unpacked(lengths, random.Random(1))), [[index] for index in range(300)])


class Shards(unittest.TestCase):
    def test_have_the_bytes_of_version_8(self):
        with tempfile.TemporaryDirectory() as folder:
            spool = _shards.Spool(folder)
            spool.append(array("i", [3, 2]), array("i", [10, 11, 12, 20, 21]), b"\0\1\0\1\0")
            spool.append(array("i", [4]), array("i", [30, 31, 32, 33]), b"\1\1\1\0")
            documents = spool.finish()
            places = list(zip(spool.places, spool.lengths))
            self.assertEqual(places, [(0, 3), (3, 2), (5, 4)])
            path = os.path.join(folder, "a.bin")
            _shards.write_shard(path, [[places[2], places[1]], [places[0]]], 7, 9, documents)
            data = Path(path).read_bytes()
        self.assertEqual(struct.unpack_from("<256i", data), (20261128, 8, 14, 7, *[0] * 252))
        self.assertEqual(struct.unpack_from("<14i", data, 1024), (30, 31, 32, 33, 20, 21, 9, 10, 11, 12, 9, 9, 9, 9))
        self.assertEqual(struct.unpack_from("<14i", data, 1024 + 56), (0, 0, 0, 0, 4, 4, 6, 0, 0, 0, 3, 4, 5, 6))
        self.assertEqual(data[1024 + 112:], b"\1\1\1\0\1\0\0" + b"\0\1\0\0\0\0\0")


class Command(unittest.TestCase):
    def test_reads_sizes_and_fractions(self):
        self.assertEqual([size("7"), size("16MiB"), size("1 KiB"), number_or_fraction("12"), number_or_fraction("0.25")], [7, 1 << 24, 1024, 12, 0.25])
        for bad in ("x", "0", "1TB"):
            with self.subTest(bad), self.assertRaisesRegex(Exception, "is no size"):
                size(bad)
        for bad in ("1.5", "-1", "half"):
            with self.subTest(bad), self.assertRaisesRegex(Exception, "neither"):
                number_or_fraction(bad)

    def test_prints_its_report(self):
        part = {"conversations": 9, "tokens": 60, "targets": 30, "samples": 2, "shards": 1, "wasted": 4}
        report = {"conversations": 14, "tokens": 120, "targets": 60, "truncated": 1, "turns_without_end": 0, "targets_from": "prefixes",
                  "left_out": {"nothing_to_learn": 1, "too_long": 2, "bad": 0}, "sequence": 32, "train": part, "holdout": {**part, "conversations": 2}}
        self.assertEqual(text_of(report).splitlines(), [
            "conversations  14: 11 written, of which 2 are held out", "tokens         120", "targets        60, 50.0% of the tokens (prefixes)",
            "truncated      1 to 32 tokens", "left out       3: 1 with nothing to learn, 2 too long, 0 bad",
            "wasted         8 tokens of padding, 6.25% of 4 samples"])

    def test_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "transformers.py").write_text("import no_such_package\n", encoding="utf-8")
            Path(folder, "tokenizers.py").touch()
            arguments = ["--model", "m", "--data", "d", "--sequence", "8", "--output", "o"]
            said = subprocess.run([sys.executable, "-B", "-m", "stowage.data", *arguments], env={**os.environ, "PYTHONPATH": f"{folder}:{PACKAGE}"},
                                  capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 2)
        self.assertEqual(said.stderr, "stowage.data: error: no_such_package is not installed: run `pip install '.[data]'` in Stowage's folder\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
