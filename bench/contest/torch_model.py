"""GPT-2 in PyTorch: learned positions, GELU by tanh, scaled_dot_product_attention, a tied head, no dropout."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, sequence, width = x.shape
        parts = self.c_attn(x).view(batch, sequence, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, sequence, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """`replays`: None, or use_reentrant of the checkpoint that replays this block in backward."""

    def __init__(self, width, heads, replays):
        super().__init__()
        self.replays = replays
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Mlp(width)

    def both(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))

    def forward(self, x):
        if self.replays is None:
            return self.both(x)
        return checkpoint(self.both, x, use_reentrant=self.replays)


class Gpt(nn.Module):
    def __init__(self, sizes, replays=None):
        super().__init__()
        width = sizes["n_embd"]
        self.wte = nn.Embedding(sizes["vocab_size"], width)
        self.wpe = nn.Embedding(sizes["n_positions"], width)
        self.h = nn.ModuleList(Block(width, sizes["n_head"], replays) for _ in range(sizes["n_layer"]))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, sizes["vocab_size"], bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return functional.cross_entropy(self.head(self.ln_f(x)).float().flatten(0, 1), targets.flatten())


def attention_milliseconds(backend, setting, kind, repeats=5):
    """Of a block's attention, forward and backward, in one of PyTorch's backends; infinite where that refuses. On a
    card."""
    from torch.nn.attention import sdpa_kernel

    case = setting.case
    shape = (min(setting.micro_batch, 16), case.heads, case.sequence, case.width // case.heads)
    parts = [torch.randn(shape, device="cuda", dtype=kind, requires_grad=True) for _ in range(3)]
    times = []
    try:
        with sdpa_kernel(backend):
            for _ in range(repeats):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                y = functional.scaled_dot_product_attention(*parts, is_causal=True)
                torch.autograd.grad(y, parts, torch.ones_like(y))
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
    except RuntimeError:
        return float("inf")
    return min(times)


def choose_attention(setting, kind):
    """Turns off the slower of PyTorch's two fast backends of attention on a card: which one it prefers is not always the
    faster. What was measured, in milliseconds."""
    from torch.nn.attention import SDPBackend

    found = {
        name: attention_milliseconds(backend, setting, kind)
        for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION))
    }
    torch.cuda.empty_cache()
    if min(found.values()) < float("inf"):
        torch.backends.cuda.enable_flash_sdp(found["flash"] <= found["cudnn"])
        torch.backends.cuda.enable_cudnn_sdp(found["cudnn"] < found["flash"])
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    return {name: time for name, time in found.items() if time < float("inf")}


def empty_model(folder, kind, replays=None):
    """Without memory, on the device `meta`."""
    sizes = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    with torch.device("meta"):
        return Gpt(sizes, replays).to(kind)


def load(model, folder, device):
    """Gives an empty model memory on the device, and the values of the file, rounded or widened to its type."""
    from safetensors import safe_open

    model.to_empty(device=device)
    model.tie()
    with safe_open(Path(folder) / "model.safetensors", framework="pt") as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            value = file.get_tensor(name)
            is_linear = value.dim() == 2 and not name.startswith(("wte", "wpe"))
            parameter.copy_(value.t() if is_linear else value)
    return model


def decayed_groups(parameters, decay):
    """AdamW's groups: matrices decay; biases and gains, which have one dimension, do not."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
