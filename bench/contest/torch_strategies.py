"""The ways in which PyTorch, DeepSpeed and ColossalAI hold a model that is trained. Each has

forward_backward(tokens, targets, share)    adds the gradients of share · loss, and returns the loss
update()                                    the optimizer's step
norm()                                      the gradients' at that step, before they were clipped; None: not known
recover()                                   whether it can go on after memory ran out in the first
"""

import os

import torch

import gemini
from torch_model import choose_attention, decayed_groups, empty_model, load
from torch_optimizer import ClippedAdamW, MasterAdamW

TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def one_rank(backend):
    """The process group of this process alone."""
    os.environ.update(
        RANK="0",
        WORLD_SIZE="1",
        LOCAL_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        GLOO_SOCKET_IFNAME="lo",
        NCCL_SOCKET_IFNAME="lo",
    )
    torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)


class Plain:
    """Everything on the device; `replays`: blocks are replayed in backward; `whole`: the model is compiled with its loss as
    one."""

    def __init__(self, setting, replays=None, whole=False):
        case, device = setting.case, setting.device
        self.attention = choose_attention(setting, TYPES[case.type]) if device == "cuda" else {}
        model = empty_model(setting.model, TYPES[case.type], replays)
        self.model = load(model, setting.model, device)
        optimizer = MasterAdamW if case.type == "bf16" else ClippedAdamW
        self.optimizer = optimizer(self.model.parameters(), decayed_groups, setting.learning)
        if whole:
            self.model.compile(dynamic=False)  # another micro-batch is compiled again, and as well
        elif setting.compile:
            for block in self.model.h:
                block.compile()

    def forward_backward(self, tokens, targets, share):
        loss = self.model(tokens, targets)
        (loss * share).backward()
        return loss.detach()

    def update(self):
        self.optimizer.step()

    def norm(self):
        return float(self.optimizer.norm)

    def recover(self):
        for parameter in self.model.parameters():
            parameter.grad = None
        return True


class Checkpointing(Plain):
    def __init__(self, setting):
        super().__init__(setting, replays=False)


class Fsdp2(Plain):
    """fully_shard on one rank: fp32 parameters, gradients, moments and AdamW on the host; blocks are replayed."""

    def __init__(self, setting):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        on_card = setting.device == "cuda"
        one_rank("cpu:gloo,cuda:nccl" if on_card else "gloo")
        model = load(empty_model(setting.model, torch.float32, replays=False), setting.model, "cpu")
        mixed = MixedPrecisionPolicy(param_dtype=TYPES[setting.case.type], reduce_dtype=torch.float32)
        how = {
            "mesh": init_device_mesh(setting.device, (1,)),
            "mp_policy": mixed,
            "offload_policy": CPUOffloadPolicy(pin_memory=on_card),
        }
        for block in model.h:
            if setting.compile:
                block.compile()
            fully_shard(block, **how)
        self.model = fully_shard(model, **how)
        self.optimizer = ClippedAdamW(self.model.parameters(), decayed_groups, setting.learning)

    def recover(self):
        return False  # a backward pass that was broken off leaves its hooks waiting


# Elements of the parts in which DeepSpeed's stage 3 updates, where they are to overlap with backward or to be divided
# between device and host. Its default of 1e9 makes two of 1.56 B parameters.
SUB_GROUP = 10**8
STATE_BYTES = 16  # of a parameter's gradient, master and moments in fp32
STATE_SHARE = 0.25  # of the case's memory, for what `ratio` leaves on the device


def device_share(case):
    """Of a model's optimizer state, what takes STATE_SHARE of the case's memory; a quarter where it has none."""
    return min(1.0, STATE_SHARE * case.memory / (STATE_BYTES * case.parameters())) if case.memory else STATE_SHARE


def zero_options(case, kind, on_card):
    """DeepSpeed's "zero_optimization" of a peer zero`kind`."""
    on_host = {"device": "cpu", "pin_memory": on_card}
    if kind == "2":
        return {"stage": 2, "offload_optimizer": on_host}
    if kind == "3":
        return {"stage": 3, "offload_optimizer": on_host, "offload_param": on_host}
    if kind == "3-ratio":  # ZeRO-Offload++'s "Twin-Flow"
        optimizer = {**on_host, "ratio": round(1 - device_share(case), 3)}
        return {"stage": 3, "sub_group_size": SUB_GROUP, "offload_optimizer": optimizer, "offload_param": on_host}
    # SuperOffload: the parameters stay on the device, as in its examples.
    optimizer = {**on_host, "super_offload": True, "cpuadam_cores_perc": 0.8}
    return {"stage": 3, "sub_group_size": SUB_GROUP, "overlap_comm": False, "offload_optimizer": optimizer}


def require_shared_memory(case, folder="/dev/shm"):
    """SuperOffload's process for AdamW has fp32 masters and gradients in shared memory; without that much, a signal ends
    it."""
    needed, there = 8 * case.parameters(), os.statvfs(folder)
    free = there.f_bavail * there.f_frsize
    if free < needed:
        raise OSError(f"SuperOffload takes {needed} bytes of {folder}, where {free} are free")


class Zero:
    """DeepSpeed's ZeRO with its AdamW on the host, all or most of it. Blocks are replayed."""

    def __init__(self, setting, kind, clips=True):
        import deepspeed
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        case, learning = setting.case, setting.learning
        if "super" in kind:
            require_shared_memory(case)
        # Stage 3 frees a parameter between forward and replay, which the other checkpoint takes for a change.
        model = load(empty_model(setting.model, TYPES[case.type], replays=True), setting.model, "cpu")
        optimizer = DeepSpeedCPUAdam(
            decayed_groups(model.parameters(), learning["weight_decay"]),
            lr=learning["learning_rate"],
            betas=(learning["beta1"], learning["beta2"]),
            eps=learning["epsilon"],
            adamw_mode=True,
        )
        one_rank("cpu:gloo,cuda:nccl" if setting.device == "cuda" else "gloo")
        self.engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": case.batch // setting.micro_batch,
                "bf16": {"enabled": case.type == "bf16"},
                "zero_optimization": zero_options(case, kind, setting.device == "cuda"),
                "gradient_clipping": learning["clip"] if clips else 0.0,
            },
        )

    def forward_backward(self, tokens, targets, _):
        loss = self.engine(tokens, targets)
        self.engine.backward(loss)  # takes the share itself
        # It updates behind the last micro-batch alone, and counts them.
        self.engine.step()
        return loss.detach()

    def update(self):
        pass

    def norm(self):
        found = self.engine.get_global_grad_norm()
        return None if found is None else float(found)

    def recover(self):
        return False


class Gemini:
    """ColossalAI's Gemini with parameters, gradients and AdamW on the host ("Gemini-CPU"). Blocks are replayed."""

    def __init__(self, setting, kind=torch.bfloat16):
        gemini.import_colossalai(setting.device)
        from colossalai.accelerator import get_accelerator
        from colossalai.nn.optimizer import CPUAdam
        from colossalai.zero.gemini import GeminiDDP, GeminiOptimizer

        case, learning, on_card = setting.case, setting.learning, setting.device == "cuda"
        one_rank("cpu:gloo,cuda:nccl" if on_card else "gloo")
        # The checkpoint that ColossalAI's examples have; the other one works too.
        model = load(empty_model(setting.model, kind, replays=True), setting.model, "cpu")
        # HybridAdam, which the examples have, does the same on the host, and needs a CUDA kernel for what is not there.
        optimizer = CPUAdam(
            decayed_groups(model.parameters(), learning["weight_decay"]),
            lr=learning["learning_rate"],
            betas=(learning["beta1"], learning["beta2"]),
            eps=learning["epsilon"],
            adamw_mode=True,
        )
        least = gemini.chunk_size(case.parameters()) / gemini.MEBI
        self.model = GeminiDDP(
            model,
            chunk_init_device=get_accelerator().get_current_device(),
            # These four were the placement "cpu" of older versions.
            placement_policy="static",
            shard_param_frac=1.0,
            offload_optim_frac=1.0,
            offload_param_frac=1.0,
            max_prefetch=1,  # chunk, beside the operation before it
            pin_memory=on_card,
            mixed_precision=kind,
            enable_gradient_accumulation=setting.micro_batch < case.batch,
            hidden_dim=case.width,
            search_range_m=least,
            min_chunk_size_m=least,
        )
        # In fp16 `initial_scale` is that of GeminiPlugin, and `verbose` tells of each update that is skipped.
        self.optimizer = GeminiOptimizer(
            optimizer, self.model, initial_scale=2**16, max_norm=learning["clip"], verbose=True
        )

    def forward_backward(self, tokens, targets, share):
        loss = self.model(tokens, targets)
        self.optimizer.backward(loss * share)
        return loss.detach()

    def update(self):
        self.optimizer.step()

    def norm(self):
        return None

    def recover(self):
        return False


STRATEGIES = {
    "pytorch": Plain,
    "pytorch-compiled": lambda setting: Plain(setting, whole=True),
    "checkpointing": Checkpointing,
    "fsdp2": Fsdp2,
    "zero2": lambda setting: Zero(setting, "2"),
    "zero3": lambda setting: Zero(setting, "3"),
    "zero3-ratio": lambda setting: Zero(setting, "3-ratio"),
    "zero3-super": lambda setting: Zero(setting, "3-super"),
    "zero3-super-clipless": lambda setting: Zero(setting, "3-super", clips=False),
    "gemini": Gemini,
    "gemini-fp16": lambda setting: Gemini(setting, torch.float16),
}
