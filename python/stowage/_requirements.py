"""Which models and optimizers are planned: all others are refused by name, with what to do."""

import torch

from stowage._plan import Refused

OLDEST = (2, 6)
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "OptimizedModule",
            "DeepSpeedEngine")


def require_plain(model):
    """Throws Refused for a model whose step is not the one that its own operations are."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        raise Refused(f"plan: PyTorch {torch.__version__} is too old; use 2.6 or newer")
    if not isinstance(model, torch.nn.Module):
        raise Refused(f"plan: model is a {type(model).__name__}; give a torch.nn.Module")
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1:
        raise Refused(f"plan: the model's parameters are on {', '.join(sorted(map(str, devices)))}; put all of it on one device, "
                      "such as meta")
    for name, module in model.named_modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        what = f"plan: {name or 'the model'} ({type(module).__name__})"
        if wrapper := kinds.intersection(WRAPPERS):
            raise Refused(f"{what} is wrapped in {wrapper.pop()}; give the model itself")
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module.forward, "_torchdynamo_orig_callable"):
            raise Refused(f"{what} is compiled; give the model as it was before")
        if isinstance(module, torch.jit.ScriptModule):
            raise Refused(f"{what} is a ScriptModule; give the module that it was made of")
        if isinstance(module, torch.nn.RNNBase):
            raise Refused(f"{what} is a recurrent layer, whose kernels do not say what memory they take")
        if hasattr(module, "_hf_hook"):
            raise Refused(f"{what} has hooks of accelerate (device_map); load it without device_map")
        if getattr(module, "gradient_checkpointing", False) is True:
            raise Refused(f"{what} recomputes its activations (gradient checkpointing); turn that off "
                          "(gradient_checkpointing_disable()): what is recomputed is the plan's to decide")
        if getattr(module, "sparse", False) is True and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise Refused(f"{what} has sparse gradients; make it with sparse=False")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise Refused(f"plan: {name} has no shape yet; run the model once before")
        if parameter.is_quantized or type(parameter).__name__ in ("Params4bit", "Int8Params") or parameter.layout != torch.strided:
            raise Refused(f"plan: {name} is quantised or sparse; load the model in bf16, f16 or f32")


def optimizer_of(optimizer, clip):
    """The header's member."""
    kind = torch.optim.AdamW if optimizer is None else optimizer if isinstance(optimizer, type) else type(optimizer)
    if kind not in (torch.optim.Adam, torch.optim.AdamW):
        raise Refused(f"plan: optimizer {getattr(kind, '__name__', kind)}; only Adam and AdamW are planned")
    groups = getattr(optimizer, "param_groups", None) or [{}]
    if any(group.get("amsgrad") for group in groups):
        raise Refused("plan: the optimizer keeps a third moment (amsgrad); make it with amsgrad=False")
    betas = groups[0].get("betas", (0.9, 0.999))
    return {"name": "adamw", "beta1": betas[0], "beta2": betas[1], "epsilon": groups[0].get("eps", 1e-8),
            "weight_decay": max(group.get("weight_decay", 0.0) for group in groups), "clip": clip or 0.0}
