"""What is compared: the models, the memory that each is given, and the peers."""

from dataclasses import dataclass

GIB = 1 << 30
WHOLE = "whole"  # in the place of GiB: the card has no ballast

# The clip is one that no step of a random model reaches: norms of 8 to 75 were seen in its first steps, and no rate
# brings them below 1 at once. Clipped steps cost Stowage the updates that it makes before it knows the norm.
LEARNING = {"learning_rate": 3e-5, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip": 1000.0}
WARM_UP = 16  # first steps, which do not count
SHORT_WARM_UP = 2  # of a peer that makes too few steps for the other: those that allocate and compile
COUNTED = 8
LEAST_COUNTED = 3  # steps that a compared rate is the median of
STEPS = WARM_UP + COUNTED
LOSS_STEP = 5  # the step whose loss is compared, counted from 1


@dataclass(frozen=True)
class Case:
    """A GPT-2 with dropout 0, and the tokens of a step: `batch` samples of `sequence` tokens."""

    name: str
    layers: int
    width: int
    heads: int
    batch: int
    gib: float | str = 0  # device memory that is left free, or WHOLE; 0: on the CPU
    sequence: int = 1024
    vocabulary: int = 50304  # GPT-2's 50,257, padded to a multiple of 64 for everybody
    type: str = "bf16"

    @property
    def tokens(self):
        return self.batch * self.sequence

    @property
    def memory(self):
        """Device bytes that are left free; None: the whole card, or the CPU."""
        return None if self.gib in (0, WHOLE) else int(self.gib * GIB)

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
WHOLE_CARD = [Case("124M-whole", layers=12, width=768, heads=12, batch=64, gib=WHOLE)]
LONG = [
    Case("1.56B-40GiB", layers=48, width=1600, heads=25, batch=4, gib=40),
    Case("3.4B-16GiB", layers=16, width=4096, heads=32, batch=16, gib=16),
    Case("774M", layers=36, width=1280, heads=20, batch=8, gib=8),
    Case("124M", layers=12, width=768, heads=12, batch=64, gib=8),
]
# The default model of scripts/train.
CPU = [Case("cpu", layers=6, width=384, heads=6, batch=8, sequence=256, vocabulary=256, type="f32")]
SMALL_CARD = [Case("small-card", layers=2, width=64, heads=2, batch=4, gib=2, sequence=64, vocabulary=256)]
SMALL_WHOLE_CARD = [
    Case("small-whole", layers=2, width=64, heads=2, batch=4, gib=WHOLE, sequence=64, vocabulary=256)
]
SMALL_CPU = [Case("small", layers=2, width=64, heads=2, batch=4, sequence=64, vocabulary=256, type="f32")]

# Everybody's names, those first whose comparison is worth most if time runs out.
PEERS = ["stowage", "fsdp2", "checkpointing", "pytorch", "zero3", "zero2", "gemini", "gemini-fp16"]
NAMED_PEERS = ["pytorch-compiled", "zero3-super", "zero3-super-clipless", "zero3-ratio"]  # where a word names them
LLM_C = "llm.c"  # a peer where there is a program of it; it starts from weights of its own
WHOLE_PEERS = ["stowage", "pytorch", "pytorch-compiled", LLM_C]
CPU_PEERS = ["stowage", "pytorch", "stowage-fifth"]
# SuperOffload refuses every device but CUDA's.
SMALL_CPU_PEERS = [
    *CPU_PEERS,
    "pytorch-compiled",
    "checkpointing",
    "fsdp2",
    "zero3",
    "zero3-ratio",
    "zero2",
    "gemini",
    "gemini-fp16",
]
COMPILED_TIMES = 2  # the seconds of a process that compiles its whole model, in those of another


@dataclass(frozen=True)
class Job:
    case: Case
    peer: str
    round: int = 1
    named: str = ""  # its case or peer, if it runs only where a word names that

    def seconds(self, process_seconds):
        """Of its process."""
        return process_seconds * (COMPILED_TIMES if self.peer == "pytorch-compiled" else 1)


def jobs_on_card(cases, whole):
    """The whole card first, where it is named; then the two peers that are worth most in every case before the others in
    any."""
    on_whole_card = [Job(case, peer, named=case.name) for case in whole for peer in WHOLE_PEERS]
    in_memory = [Job(case, peer) for peers in (PEERS[:2], PEERS[2:]) for case in cases for peer in peers]
    return on_whole_card + in_memory + [Job(case, peer, named=peer) for case in cases for peer in NAMED_PEERS]


def jobs_on_cpu(cases, peers, rounds):
    """Alternating, so that what else the machine does falls on all alike."""
    return [Job(case, peer, turn + 1) for case in cases for turn in range(rounds) for peer in peers]


def all_jobs(device, small, long, rounds=2, llm_c=False):
    """`llm_c`: whether there is a program of llm.c."""
    on_card = jobs_on_card(SMALL_CARD, SMALL_WHOLE_CARD)
    if device == "cuda" and not small:
        on_card = jobs_on_card(CARD + (LONG if long else []), WHOLE_CARD)
    on_card = [job for job in on_card if llm_c or job.peer != LLM_C]
    if device == "cuda":
        return on_card
    # Jobs for a card get as far as their first device call.
    return (jobs_on_cpu(SMALL_CPU, SMALL_CPU_PEERS, 1) if small else jobs_on_cpu(CPU, CPU_PEERS, rounds)) + on_card


def chosen(jobs, words):
    """The jobs whose case and peer are among the words, where any case or any peer is; a job with `named` only where that
    word is there. ValueError for another word."""
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
        and (job.named in words or not job.named)
    ]
