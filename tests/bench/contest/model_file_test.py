"""The model's files: their layout, and their bits."""

import json
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import model_file  # noqa: E402

TINY = cases.Case("tiny", layers=2, width=8, heads=2, batch=2, sequence=4, vocabulary=16, type="f32")


def tensors_of(path):
    """Name to (type, shape, bytes), holes and overlaps refused."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body, at, found = json.loads(data[8 : 8 + length]), data[8 + length :], 0, {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        assert begin == at, name
        found[name], at = (tensor["dtype"], tensor["shape"], body[begin:end]), end
    assert at == len(body)
    return found


class Files(unittest.TestCase):
    def written(self, case):
        with tempfile.TemporaryDirectory() as folder:
            model_file.write_files(folder, case)
            return tensors_of(Path(folder, "model", "model.safetensors")), list(
                model_file.read_tokens(Path(folder, "tokens.bin"))
            )

    def test_every_tensor_has_its_bytes(self):
        found, _ = self.written(TINY)
        self.assertEqual(list(found), [name for name, _, _ in TINY.tensors()])
        self.assertEqual(sum(len(data) for _, _, data in found.values()), 4 * TINY.parameters())
        self.assertEqual(found["h.1.mlp.c_fc.weight"][:2], ("F32", [8, 32]))
        self.assertEqual(found["h.0.ln_1.weight"][2], struct.pack("<8f", *[1] * 8))
        self.assertEqual(found["h.0.attn.c_attn.bias"][2], bytes(4 * 24))

    def test_weights_are_drawn_with_the_deviation_of_their_kind(self):
        def deviation(data):
            values = struct.unpack(f"<{len(data) // 4}f", data)
            return (sum(value * value for value in values) / len(values)) ** 0.5

        found, _ = self.written(TINY)
        self.assertAlmostEqual(deviation(found["h.0.mlp.c_fc.weight"][2]), 0.02, delta=0.003)
        self.assertAlmostEqual(deviation(found["h.0.mlp.c_proj.weight"][2]), 0.01, delta=0.0015)
        self.assertNotEqual(found["h.0.mlp.c_fc.weight"][2], found["h.1.mlp.c_fc.weight"][2])

    def test_both_types_have_the_same_values(self):
        wide, _ = self.written(TINY)
        narrow, _ = self.written(cases.Case(**{**TINY.__dict__, "type": "bf16"}))
        for name, (_, _, data) in wide.items():
            values = struct.unpack(f"<{len(data) // 4}f", data)
            self.assertEqual(narrow[name][2], model_file.bf16_bytes(values), name)

    def test_a_tensor_longer_than_what_is_drawn_goes_round(self):
        weights = model_file.Weights("f32", 5)
        with tempfile.TemporaryFile() as file:
            weights.write(file, 3, 1.0)
            weights.write(file, 9, 1.0)
            file.seek(0)
            written = file.read()
        self.assertEqual(written, model_file.f32_bytes([weights.normal[i % 5] for i in range(12)]))

    def test_rounds_to_nearest_and_ties_to_even(self):
        self.assertEqual(
            model_file.bf16_bytes([1.0, -2.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20]),
            struct.pack("<5H", 0x3F80, 0xC000, 0x3F80, 0x3F82, 0x3F81),
        )

    def test_tokens_are_one_step_and_its_last_target(self):
        _, tokens = self.written(TINY)
        self.assertEqual(tokens, model_file.tokens_of(TINY))
        self.assertEqual(len(tokens), 2 * 4 + 1)
        self.assertTrue(all(0 <= token < 16 for token in tokens))

    def test_other_files_are_no_tokens(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(2000))
            file.flush()
            with self.assertRaisesRegex(ValueError, "is no token shard"):
                model_file.read_tokens(file.name)


if __name__ == "__main__":
    unittest.main()
