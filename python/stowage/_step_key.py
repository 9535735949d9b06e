"""What tells the steps of a model apart: which tape is this call's."""

import torch

from stowage._numbers import is_number
from stowage._plan import Refused

MODULES_OWN = set(vars(torch.nn.Module())) - {"training"}
PLAIN = (bool, int, float, str, type(None))
ENTRY = "_stowage"  # the model's attribute
WRAPPED = {ENTRY, "forward", "_original_forward", "_is_accelerate_prepared"}  # the model's, when others have wrapped its forward


class Itself:
    """Anything, compared by identity; it lives as long as this."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Itself and self.value is other.value


class Same:
    """A tensor that is compared by identity and by its bytes' place, and lives as long as this."""

    def __init__(self, tensor):
        self.tensor, self.place = tensor, (*layout_of(tensor), tensor.data_ptr() if tensor.layout == torch.strided else 0)

    def __eq__(self, other):
        return type(other) is Same and self.tensor is other.tensor and self.place == other.place


def step_key(model, own_parameters, leaves, spec):
    """By name all that a tape depends on, but for the numbers in its tensors and the answers of its guards. own_parameters: the model's when
    it was offloaded. leaves, spec: of the arguments. Throws Refused."""
    key = {"structure of the arguments": str(spec),
           "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
           "PyTorch's settings": (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
                                  torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())}
    for place, leaf in enumerate(leaves):
        require_leaf(place, leaf)
        key[f"argument {place}"] = layout_of(leaf) if isinstance(leaf, torch.Tensor) else (type(leaf), None if is_number(leaf) else leaf)
    for name, module in model.named_modules():
        require_no_hooks(name, module)
        key[name or type(module).__name__] = type(module), guarded(module, module is not model)
    parameters = list(model.parameters())
    if len(parameters) != len(own_parameters) or any(new is not old for new, old in zip(parameters, own_parameters)):
        raise Refused("offload: the model's parameters are others than when stowage.offload was called; make the model anew, and call it again")
    for place, parameter in enumerate(parameters):
        storage = parameter.untyped_storage()
        key[f"parameter {place}"] = (parameter.requires_grad, *layout_of(parameter), parameter.storage_offset(), storage.nbytes())
    return key


def layout_of(tensor):
    return tuple(tensor.shape), tensor.stride() if tensor.layout == torch.strided else None, tensor.dtype, tensor.device


def require_leaf(place, leaf):
    what = f"offload: argument {place} of the model"
    if not isinstance(leaf, torch.Tensor):
        if not isinstance(leaf, PLAIN):
            raise Refused(f"{what} is a {type(leaf).__name__}; give tensors, numbers and texts")
    elif leaf.requires_grad:
        raise Refused(f"{what} requires a gradient, which is not supported yet")
    elif type(leaf) is not torch.Tensor or leaf.device.type != "cpu" or leaf.layout != torch.strided or leaf.is_conj() or leaf.is_neg():
        raise Refused(f"{what} is no plain tensor on the CPU")
    elif torch._debug_has_internal_overlap(leaf) == 1:
        raise Refused(f"{what} has elements that share memory; give its contiguous()")


def require_no_hooks(name, module):
    if torch.nn.modules.module._has_any_global_hook():
        raise Refused("offload: there are hooks for all modules (torch.nn.modules.module.register_module_…), which a tape does not call; remove "
                      "them")
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise Refused(f"offload: {name or 'the model'} ({type(module).__name__}) has hooks, which a tape does not call; remove them")


def compared(value):
    """What tells whether forward finds the same: numbers, texts and what lists hold by their values, all else by identity."""
    if isinstance(value, PLAIN):
        return type(value), repr(value) if isinstance(value, float) else value
    if isinstance(value, torch.Tensor):
        return Same(value)
    if type(value) in (list, tuple):
        return type(value), tuple(map(compared, value))
    if type(value) is dict:
        return tuple((compared(name), compared(item)) for name, item in value.items())
    return Itself(value)


def attributes_of(module):
    return {name: value for name, value in vars(module).items() if name not in MODULES_OWN}


def guarded(module, own_forward):
    """What forward may look at: the module's attributes, parts and buffers, and its configuration's attributes, with configurations in that."""
    own = {name: value for name, value in attributes_of(module).items() if own_forward or name not in WRAPPED}
    configuration = getattr(own.get("config"), "__dict__", {})
    parts = [(name, vars(part)) for name, part in configuration.items() if name.endswith("_config") and hasattr(part, "__dict__")]
    return [compared(part) for part in (own, configuration, parts, dict(module._modules), dict(module._buffers))]
