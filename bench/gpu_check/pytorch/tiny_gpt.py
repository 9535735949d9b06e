"""A small GPT in plain PyTorch, its training step, and the options of the programs that train it. Deterministic: two runs
on one card have the same losses to the bit."""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic cuBLAS; read when a card is first used


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda")
    for name, value in (("layers", 2), ("width", 64), ("heads", 2), ("vocabulary", 256), ("sequence", 32), ("batch", 4),
                        ("steps", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class TinyGpt(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.tokens = nn.Embedding(of.vocabulary, of.width)
        self.places = nn.Parameter(0.02 * torch.randn(of.sequence, of.width))
        self.blocks = nn.Sequential(*(Block(of.width, of.heads) for _ in range(of.layers)))
        self.norm, self.head = nn.LayerNorm(of.width), nn.Linear(of.width, of.vocabulary)

    def loss(self, tokens):
        hidden = self.blocks(self.tokens(tokens[:, :-1]) + self.places)
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Training:
    """Same weights and same tokens for the same options."""

    def __init__(self, of):
        torch.manual_seed(1)
        torch.use_deterministic_algorithms(True)
        self.of = of
        self.model = TinyGpt(of).to(of.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def tokens(self, step):
        random = torch.Generator().manual_seed(step)
        return torch.randint(self.of.vocabulary, (self.of.batch, self.of.sequence + 1), generator=random).to(self.of.device)

    def step(self, number):
        loss = self.model.loss(self.tokens(number))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
