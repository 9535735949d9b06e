"""What is compared: the models, the memory that each is given, and the peers."""

from dataclasses import dataclass

GIB = 1 << 30

LEARNING = {"learning_rate": 3e-4, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip": 1.0}
LEFT_OUT = 2  # first steps, which allocate and warm up
STEPS = 8
LOSS_STEP = 5  # the step whose loss is compared, counted from 1


@dataclass(frozen=True)
class Case:
    """A GPT-2 with dropout 0, and the tokens of a step: `batch` samples of `sequence` tokens."""

    name: str
    layers: int
    width: int
    heads: int
    batch: int
    gib: float = 0  # device memory that is left free; 0: on the CPU
    sequence: int = 1024
    vocabulary: int = 50304  # GPT-2's 50,257, padded to a multiple of 64 for everybody
    type: str = "bf16"

    @property
    def tokens(self):
        return self.batch * self.sequence

    @property
    def memory(self):
        return int(self.gib * GIB)

    def tensors(self):
        """(name, shape, deviation or None for a norm's gain of 1 and 0 for a bias), as Hugging Face stores a GPT-2."""
        width, narrow = self.width, 0.02 / (2 * self.layers) ** 0.5
        yield "wte.weight", (self.vocabulary, width), 0.02
        yield "wpe.weight", (self.sequence, width), 0.02
        for layer in range(self.layers):
            for name, inner, outer, deviation in [
                ("attn.c_attn", width, 3 * width, 0.02),
                ("attn.c_proj", width, width, narrow),
                ("mlp.c_fc", width, 4 * width, 0.02),
                ("mlp.c_proj", 4 * width, width, narrow),
            ]:
                yield f"h.{layer}.{name}.weight", (inner, outer), deviation
                yield f"h.{layer}.{name}.bias", (outer,), 0
            for norm in ("ln_1", "ln_2"):
                yield f"h.{layer}.{norm}.weight", (width,), None
                yield f"h.{layer}.{norm}.bias", (width,), 0
        yield "ln_f.weight", (width,), None
        yield "ln_f.bias", (width,), 0

    def parameters(self):
        return sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for _, shape, _ in self.tensors())


CARD = [
    Case("1.56B", layers=48, width=1600, heads=25, batch=4, gib=12),
    Case("3.4B", layers=16, width=4096, heads=32, batch=16, gib=24),
]
LONG = [
    Case("1.56B-40GiB", layers=48, width=1600, heads=25, batch=4, gib=40),
    Case("3.4B-16GiB", layers=16, width=4096, heads=32, batch=16, gib=16),
    Case("774M", layers=36, width=1280, heads=20, batch=8, gib=8),
    Case("124M", layers=12, width=768, heads=12, batch=64, gib=8),
]
# The default model of scripts/train.
CPU = [Case("cpu", layers=6, width=384, heads=6, batch=8, sequence=256, vocabulary=256, type="f32")]
SMALL_CARD = [Case("small-card", layers=2, width=64, heads=2, batch=4, gib=2, sequence=64, vocabulary=256)]
SMALL_CPU = [Case("small", layers=2, width=64, heads=2, batch=4, sequence=64, vocabulary=256, type="f32")]

# Everybody's names, those first whose comparison is worth most if time runs out.
PEERS = ["stowage", "fsdp2", "checkpointing", "pytorch", "zero3", "zero2", "gemini", "gemini-fp16"]
CPU_PEERS = ["stowage", "pytorch", "stowage-fifth"]
SMALL_CPU_PEERS = [*CPU_PEERS, "checkpointing", "fsdp2", "zero3", "zero2", "gemini", "gemini-fp16"]


@dataclass(frozen=True)
class Job:
    case: Case
    peer: str
    round: int = 1


def jobs_on_card(cases):
    """The two peers that are worth most in every case before the others in any."""
    return [Job(case, peer) for peers in (PEERS[:2], PEERS[2:]) for case in cases for peer in peers]


def jobs_on_cpu(cases, peers, rounds):
    """Alternating, so that what else the machine does falls on all alike."""
    return [Job(case, peer, turn + 1) for case in cases for turn in range(rounds) for peer in peers]


def all_jobs(device, small, long, rounds=2):
    if device == "cuda":
        return jobs_on_card(SMALL_CARD if small else CARD + (LONG if long else []))
    measured = jobs_on_cpu(SMALL_CPU, SMALL_CPU_PEERS, 1) if small else jobs_on_cpu(CPU, CPU_PEERS, rounds)
    return measured + jobs_on_card(SMALL_CARD)  # these get as far as their first device call


def chosen(jobs, words):
    """The jobs whose case and peer are among the words, where any case or any peer is. ValueError for another word."""
    cases = {job.case.name for job in jobs}
    peers = {job.peer for job in jobs}
    for word in words:
        if word not in cases | peers:
            raise ValueError(
                f"{word}: there is no such case or peer here; cases: {', '.join(sorted(cases))}; "
                f"peers: {', '.join(sorted(peers))}"
            )
    return [
        job
        for job in jobs
        if (job.case.name in words or not cases.intersection(words))
        and (job.peer in words or not peers.intersection(words))
    ]
