"""What tells the steps of a model apart: which tape is this call's."""

from operator import is_

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


def call_key(leaves, spec):
    """By name what a tape depends on of a call's arguments (leaves, spec) and of PyTorch's settings, but for the numbers in tensors and the
    answers of its guards. Throws Refused."""
    key = {"structure of the arguments": str(spec),
           "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
           "PyTorch's settings": (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
                                  torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())}
    for place, leaf in enumerate(leaves):
        require_leaf(place, leaf)
        key[f"argument {place}"] = layout_of(leaf) if isinstance(leaf, torch.Tensor) else (type(leaf), None if is_number(leaf) else leaf)
    return key


class ModelKey:
    """By name what a tape depends on of the model: `named`. It is made in full once, and then asked whether it still holds."""

    def __init__(self, model, own_parameters):
        """own_parameters: the model's when it was offloaded. Throws Refused."""
        self.named = {}
        self.modules, self.types, self.hooks = [], [], []
        self.members = []  # dictionaries, with their names and values, which are compared by identity
        self.contents = []  # lists and other values that may change where they are, with what they hold
        self.configurations = {}  # by identity: many modules share one
        self.owners = []  # configurations, with their dictionaries
        for name, module in model.named_modules():
            require_no_hooks(name, module)
            self.modules.append(module)
            self.types.append(type(module))
            self.hooks += [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]
            self.named[name or type(module).__name__] = type(module), self.guarded(module, module is not model)
        parameters = list(model.parameters())
        if len(parameters) != len(own_parameters) or any(new is not old for new, old in zip(parameters, own_parameters)):
            raise Refused("offload: the model's parameters are others than when stowage.offload was called; make the model anew, and call it again")
        self.parameters = [(parameter, layout_of_parameter(parameter)) for parameter in parameters]
        self.named |= {f"parameter {place}": layout for place, (_, layout) in enumerate(self.parameters)}

    def holds(self):
        """Whether nothing has been put in the place of anything. False says nothing: what is new may be equal."""
        if any(self.hooks) or torch.nn.modules.module._has_any_global_hook() or not all(map(is_, map(type, self.modules), self.types)):
            return False
        for members, names, values in self.members:
            if len(members) != len(names) or not all(map(is_, members, names)) or not all(map(is_, members.values(), values)):
                return False
        return all(vars(owner) is members for owner, members in self.owners) \
            and all(compared(value) == before for value, before in self.contents) \
            and all(layout_of_parameter(parameter) == before for parameter, before in self.parameters)

    def guarded(self, module, own_forward):
        """What forward may look at: the module's attributes, parts and buffers, and its configuration's attributes, with configurations in
        that."""
        self.see(vars(module))
        self.see(module._parameters)
        own = {name: value for name, value in attributes_of(module).items() if own_forward or name not in WRAPPED}
        self.watch(own.values())
        return compared(own), self.configuration(own.get("config")), self.held(module._modules), self.held(module._buffers)

    def configuration(self, configuration):
        members = getattr(configuration, "__dict__", None)
        if members is not None and id(members) not in self.configurations:
            parts = [(name, vars(part)) for name, part in members.items() if name.endswith("_config") and hasattr(part, "__dict__")]
            self.configurations[id(members)] = self.held(members), [(name, self.held(part)) for name, part in parts]
            self.owners += [(configuration, members), *((members[name], part) for name, part in parts)]
        return self.configurations.get(id(members))

    def held(self, members):
        self.see(members)
        self.watch(members.values())
        return compared(members)

    def see(self, members):
        self.members.append((members, tuple(members), tuple(members.values())))

    def watch(self, values):
        self.contents += [(value, compared(value)) for value in values if isinstance(value, (list, tuple, dict, torch.Tensor))]


def layout_of_parameter(parameter):
    return parameter.requires_grad, *layout_of(parameter), parameter.storage_offset(), parameter.untyped_storage().nbytes()


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
