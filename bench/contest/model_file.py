"""The files that every peer starts from: a GPT-2's random weights as Hugging Face stores them, and tokens."""

import array
import json
import random
import struct
import sys
from pathlib import Path

# Drawn once and repeated: a prime, so that no two rows of a matrix are alike. Drawing billions would take minutes.
BLOCK = 1_048_573
MOST_WRITTEN = 1 << 16  # values of a gain or bias, which are all alike


def bf16_bytes(values):
    """Rounded to nearest, ties to even; finite values."""
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("H", [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]).tobytes()


def f32_bytes(values):
    return array.array("f", values).tobytes()


class Weights:
    """Bytes of tensors in one type, drawn from at most `most` values. The same for the same seed on every machine."""

    def __init__(self, kind, most, seed=1):
        self.encode, self.size = (bf16_bytes, 2) if kind == "bf16" else (f32_bytes, 4)
        generator = random.Random(seed)
        self.normal = [generator.gauss(0, 1) for _ in range(min(BLOCK, most))]
        self.blocks = {}
        self.offset = 0  # in the drawn values, where the next tensor begins

    def block(self, deviation):
        if deviation not in self.blocks:
            values = (
                [1.0] * MOST_WRITTEN
                if deviation is None
                else [0.0] * MOST_WRITTEN if deviation == 0 else [deviation * value for value in self.normal]
            )
            self.blocks[deviation] = memoryview(self.encode(values))
        return self.blocks[deviation]

    def write(self, file, count, deviation):
        block, left = self.block(deviation), count * self.size
        at = self.offset * self.size % len(block) if deviation else 0
        while left > 0:
            piece = block[at : at + left]
            file.write(piece)
            left, at = left - len(piece), 0
        if deviation:
            self.offset = (self.offset + count) % len(self.normal)


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def header_of(case, size):
    """safetensors: the length of a JSON object in 8 bytes, then the object, padded to 8."""
    tensors, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in case.tensors():
        end = at + count(shape) * size
        tensors[name] = {"dtype": "BF16" if case.type == "bf16" else "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def config_of(case):
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_layer": case.layers,
        "n_embd": case.width,
        "n_head": case.heads,
        "n_positions": case.sequence,
        "n_inner": None,
        "vocab_size": case.vocabulary,
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
    }


def tokens_of(case, seed=2):
    """batch · sequence + 1 tokens, the frequent ones far more so than the rare ones, as in a text."""
    generator = random.Random(seed)
    return [int(case.vocabulary * generator.random() ** 3) for _ in range(case.tokens + 1)]


def token_file(tokens):
    """A shard of llm.c: 256 numbers of 4 bytes (magic, version, count), then 2 bytes for each token."""
    header = array.array("i", [20240520, 1, len(tokens)] + [0] * 253)
    return header.tobytes() + array.array("H", tokens).tobytes()


def read_tokens(path):
    data = Path(path).read_bytes()
    tokens = array.array("H", data[1024:])
    if struct.unpack("<3i", data[:12]) != (20240520, 1, len(tokens)):
        raise ValueError(f"{path} is no token shard of 2 bytes a token")
    return tokens


def write_files(folder, case):
    """`folder`/model (config.json, model.safetensors) and `folder`/tokens.bin, which has the samples of one step: every
    step trains on the same ones, so that no order of samples matters."""
    if sys.byteorder != "little":
        raise OSError("the model's files are little-endian, this machine is not")
    model = Path(folder) / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(config_of(case)), encoding="utf-8")
    weights = Weights(case.type, case.parameters())
    with open(model / "model.safetensors", "wb") as file:
        file.write(header_of(case, weights.size))
        for _, shape, deviation in case.tensors():
            weights.write(file, count(shape), deviation)
    (Path(folder) / "tokens.bin").write_bytes(token_file(tokens_of(case)))
