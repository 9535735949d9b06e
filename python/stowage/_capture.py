"""Records one training step of a PyTorch model as a trace (docs/trace.md), with no memory for its tensors.

The model runs once, forward and backward, on tensors that have shapes and no bytes (torch's FakeTensorMode), under a dispatch
mode that sees each operation. Integers and booleans of the batch and the model stay real, so that masks take the path that
they take in a real run. A value of the trace is a storage from one write to the next: views have no bytes of their own.
"""

import json
import warnings
from contextlib import ExitStack, contextmanager, nullcontext

import torch
from torch._subclasses.fake_tensor import (DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode,
                                           UnsupportedOperatorException, unset_fake_temporarily)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from stowage._card import on_a_card
from stowage._left_alone import fake_like, in_training, stand_in, tensors_in, untouched
from stowage._plan import Refused
from stowage._requirements import optimizer_of, require_plain

TYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32",
         torch.int16: "i16", torch.uint8: "u8"}

# Operations that look at shapes and types of what they are given, and at no bytes of it: their results can be made again without.
SHAPE_ONLY = {"aten::" + name for name in (
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_empty", "new_empty_strided",
    "new_zeros", "new_ones", "new_full")}
# Of these, the ones that write no bytes either.
EMPTY = {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"}

# Arguments that an operation writes though its schema does not say so, by their places, if the argument at the last place is true: running
# statistics.
UNSAID = {f"aten::{name}_batch_norm": ((3, 4), 5) for name in ("native", "cudnn", "miopen")}

# Of what PyTorch says where an operation needs more of a tensor than its shape.
NEEDS_BYTES = ("no fake impl registered", "is not supported for tensor subclasses", "Cannot access data pointer")

# And where its operands are on different devices.
SEVERAL_DEVICES = ("is not on the expected device", "two different devices", "at least two devices")

RECOMPUTES = ("plan: {} runs again in backward (gradient checkpointing); turn that off: what is recomputed is the plan's to decide")


class NoLoss(Refused):
    """The model's output has no loss."""


def key_of(tensor):
    return tensor.untyped_storage()._cdata


class Value:
    """The bytes of a storage from one write to the next."""

    def __init__(self, name, kind, tensor):
        self.name, self.kind, self.storage = name, kind, tensor.untyped_storage()  # kept, so that its key stays its own
        self.bytes = max(1, self.storage.nbytes())
        self.type, self.shape = tensor.dtype, tuple(tensor.shape)
        self.trained = True
        self.of = None  # of a gradient: its parameter

    def line(self, loss):
        line = {"tensor": self.name, "kind": self.kind}
        elements = 1
        for extent in self.shape:
            elements *= extent
        if self is loss:
            line |= {"type": "f32", "shape": []}
        elif self.type in TYPES and elements > 0 and elements * self.type.itemsize == self.bytes:
            line |= {"type": TYPES[self.type], "shape": list(self.shape)}
        else:
            line |= {"bytes": self.bytes}
        if self.of is not None:
            line["of"] = self.of.name
        if not self.trained:
            line["trained"] = False
        return line


class Step(TorchDispatchMode):
    """The operations of a step, in order."""

    shape_only = SHAPE_ONLY

    def __init__(self):
        super().__init__()
        self.values, self.ops = [], []
        self.newest = {}  # of a storage: its value now
        self.phase = "forward"
        self.units, self.unit, self.module = ["start"], 0, ""
        self.places = {}  # of an autograd node's sequence number: unit and module of its forward operation
        self.names = {}
        self.held = []  # backward: values that the next operation is taken to read
        self.recomputes = False

    def unique(self, name):
        count = self.names[name] = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}.{count}"

    def add(self, name, kind, tensor):
        value = Value(self.unique(name), kind, tensor)
        self.values.append(value)
        self.newest[key_of(tensor)] = value
        return value

    def value_of(self, tensor):
        found = self.newest.get(key_of(tensor))
        return found if found is not None else self.add("input", "input", tensor)

    def enter_unit(self, name):
        self.units.append(self.unique(name))
        self.unit = len(self.units) - 1

    def backward_of(self, loss):
        self.phase = "backward"
        loss.backward()

    def find_place(self):
        """Backward: the unit and the module of the forward operation whose gradient is taken, but never a later unit again."""
        node = torch._C._current_autograd_node()
        place = self.places.get(node._sequence_nr()) if node is not None else None
        if place is not None:
            self.unit, self.module = min(self.unit, place[0]), place[1]

    def find_recomputation(self):
        """Of backward's operations only those of a forward that runs again have gradients of their own. A function of the model's own may
        do so; to refuse here would end the process."""
        node = torch._C._current_autograd_node()
        own = isinstance(node, torch.autograd.function.BackwardCFunction) and node.name() != "CheckpointFunctionBackward"
        self.recomputes |= node is not None and torch.is_grad_enabled() and not own

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        if not any(isinstance(tensor, FakeTensor) for tensor in given) and is_real(func, args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if self.phase == "forward":
            self.places[torch.autograd._get_sequence_nr() - 1] = (self.unit, self.module)
        else:
            self.find_place()
            self.find_recomputation()
        result = func(*args, **kwargs)
        self.record(func, args, kwargs, given, result)
        return result

    def effect(self, name):
        """What is written by an operation that changes nothing but parameters and inputs: such operations are left out."""
        return []

    def record(self, func, args, kwargs, given, result):
        had = {key_of(tensor) for tensor in given}
        made = {key_of(tensor): tensor for tensor in tensors_in(result)
                if tensor.numel() > 0 and key_of(tensor) not in had and key_of(tensor) not in self.newest}
        changed = [tensor for tensor in changed_by(func, args, kwargs) if tensor.numel() > 0]
        if not made and not changed:
            return  # a view, or nothing
        if func._schema.name in self.shape_only:
            given = []
        reads = [*(self.value_of(tensor) for tensor in given if tensor.numel() > 0), *self.held]
        reads = list({id(value): value for value in reads}.values())
        self.held = []
        name = ".".join(part for part in (self.module, func._schema.name.split("::")[-1]) if part)
        name = self.unique(name + (".backward" if self.phase == "backward" else ""))
        op = {"op": name, "phase": self.phase, "unit": self.units[self.unit], "kernel": kernel_of(func, given, made)}
        writes = [self.add(f"{name}.out", "activation", tensor) for tensor in made.values()]
        aliases = []
        for tensor in changed:
            before = self.value_of(tensor)
            if before.kind in ("parameter", "input"):  # a running statistic, say
                if self.phase == "forward":
                    op["replayable"] = False
                continue
            after = self.add(f"{name}.in_place", "activation", tensor)
            after.type, after.shape = before.type, before.shape
            writes.append(after)
            aliases.append((after, before))
        writes = writes or self.effect(name)
        if not writes:
            return
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            op["flops"] = float(count(*args, **kwargs, out_val=result))
            if given[0].dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                op["type"] = TYPES[given[0].dtype]
        moved = [*given, *(made.values() if func._schema.name not in EMPTY else ())]
        op["bytes"] = float(sum(tensor.numel() * tensor.element_size() for tensor in moved))
        self.ops.append((op, reads, writes, aliases))


def is_real(func, args, kwargs):
    """Whether an operation on real tensors, which are whole numbers, gives real ones again."""
    try:
        results = tensors_in(func(*args, **kwargs))
    except (DataDependentOutputException, DynamicOutputShapeException):
        return True
    return not any(tensor.is_floating_point() or tensor.is_complex() for tensor in results)


def changed_by(func, args, kwargs):
    """The tensors that the operation writes in place."""
    unsaid, condition = UNSAID.get(func._schema.name, ((), None))
    changed = tensors_in([args[place] for place in unsaid]) if condition is not None and args[condition] else []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        changed += tensors_in(args[place] if place < len(args) else kwargs.get(argument.name))
    return changed


def kernel_of(func, given, made):
    is_cast = str(func) == "aten._to_copy.default" and len(made) == 1 and given[0].dtype != next(iter(made.values())).dtype
    return "cast" if is_cast else str(func)


def blocks_of(model):
    """The members of the largest list of modules, else the children of the largest Sequential."""
    for kind in (torch.nn.ModuleList, torch.nn.Sequential):
        lists = [module for module in model.modules() if isinstance(module, kind)]
        if lists:
            return list(max(lists, key=len))
    return []


def loss_in(output, batch, loss):
    if loss is not None:
        value = loss(output, batch)
    elif isinstance(output, torch.Tensor):
        value = output
    else:
        value = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if value is None and isinstance(output, (tuple, list)) and output:
            value = output[0]
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.requires_grad:
        return value
    raise NoLoss("plan: the model's output is no loss, a scalar that its parameters lead to; add one, such as "
                 "loss=lambda output, batch: torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), "
                 "batch[\"labels\"].flatten())")


@contextmanager
def watched(model, step):
    """Units and modules are told by hooks, which go again."""
    blocks = {id(block) for block in blocks_of(model)}
    inside, hooks = [], []

    def before(name):
        def hook(module, _):
            if step.phase == "backward":
                raise Refused(RECOMPUTES.format(name or "the model"))
            if id(module) in blocks:
                step.enter_unit(name)
            inside.append(step.module)
            step.module = name
        return hook

    def after(module, _, __):
        step.module = inside.pop()
        if id(module) in blocks and module is last:
            step.enter_unit("end")

    last = (blocks_of(model) or [None])[-1]
    try:
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(before(name)))
            hooks.append(module.register_forward_hook(after))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def autocast_here():
    """Of a card's autocast that is on: the same of the device that the step is recorded on."""
    if torch.is_autocast_enabled("cuda"):
        return torch.autocast("cpu", dtype=torch.get_autocast_dtype("cuda"))
    return nullcontext()


def hold_saved(loss, step):
    """Keeps what functions of the model's own (torch.autograd.Function) save until their backward runs, whether that reads it or not."""
    seen, left = set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [before for before, _ in node.next_functions]
        if not isinstance(node, torch.autograd.function.BackwardCFunction):
            continue
        saved = tensors_in([*node.__dict__.values(), *node.saved_tensors])
        values = [step.newest[key_of(tensor)] for tensor in saved if key_of(tensor) in step.newest]
        if values:
            node.register_prehook(lambda _, values=values: step.held.extend(values))


def stand_ins(model, step, mode):
    """By name: what the model's parameters and buffers are in the step."""
    tensors, known = {}, {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in known:
            known[id(parameter)] = fake_like(parameter, mode).requires_grad_(parameter.requires_grad)
            step.add(name, "parameter", known[id(parameter)]).trained = parameter.requires_grad
        tensors[name] = known[id(parameter)]
    for name, buffer in model.named_buffers(remove_duplicate=False):
        tensors[name] = stand_in(buffer, mode)
        if isinstance(tensors[name], FakeTensor):
            step.add(name, "input", tensors[name])
    return tensors


def call(model, tensors, batch):
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return torch.func.functional_call(model, tensors, (), dict(batch))
    return torch.func.functional_call(model, tensors, tuple(batch) if isinstance(batch, (tuple, list)) else (batch,))


def counts_of(batch):
    """Samples, and tokens where there are some: rows and elements of the first tensor of whole numbers."""
    tensors = tensors_in(dict(batch) if hasattr(batch, "keys") else batch)
    samples = next((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), 0)
    ids = next((tensor for tensor in tensors if not tensor.is_floating_point() and tensor.dim() == 2), None)
    return {"samples": samples, "tokens": ids.numel() if ids is not None else 0}


def capture(model, batch, clip=None, loss=None, optimizer=None, kernels="cpu"):
    """The trace's text. Throws Refused, with what to do, for a step that cannot be recorded."""
    require_plain(model)
    if kernels not in ("cpu", "card"):
        raise Refused(f"plan: kernels={kernels!r}; give 'cpu' or 'card'")
    header = {"stowage_trace": 2, "loss": "", "optimizer": optimizer_of(optimizer, clip)}
    header |= {name: count for name, count in counts_of(batch).items() if count > 0}
    mode, step = FakeTensorMode(allow_non_fake_inputs=True), Step()
    tensors = stand_ins(model, step, mode)

    batch = tree_map(lambda leaf: stand_in(leaf, mode) if isinstance(leaf, torch.Tensor) else leaf,
                     dict(batch) if hasattr(batch, "keys") else batch)
    try:
        with ExitStack() as stack:
            for context in (warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.inference_mode(False),
                            in_training(model), untouched(model, mode), watched(model, step), mode, step, autocast_here(),
                            torch.enable_grad(), on_a_card() if kernels == "card" else nullcontext()):
                stack.enter_context(context)
            warnings.simplefilter("ignore")
            value = loss_in(call(model, tensors, batch), batch, loss)
            hold_saved(value, step)
            step.backward_of(value)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Refused(f"plan: {step.module or 'the model'} looks at values ({error.func}), which a plan does not have; take that out "
                      "of the step") from error
    except UnsupportedOperatorException as error:
        raise Refused(f"plan: {step.module or 'the model'} has an operation whose shapes are not known ({error.func})") from error
    except RuntimeError as error:
        if any(words in str(error) for words in SEVERAL_DEVICES):
            raise Refused(f"plan: {step.module or 'the model'} has tensors on several devices; make them on the device of what it is "
                          "given") from error
        if not any(words in str(error) for words in NEEDS_BYTES):
            raise
        raise Refused(f"plan: {step.module or 'the model'} has an operation that looks at bytes, which a plan does not have, or does not say "
                      f"its shapes: {str(error).splitlines()[0]}") from error
    if step.recomputes:
        raise Refused(RECOMPUTES.format("a part of the model"))
    name_gradients(step, tensors)
    return written(step, step.value_of(value), header)


def name_gradients(step, tensors):
    for tensor in tensors.values():
        if not tensor.requires_grad or tensor.grad is None:
            continue
        parameter, gradient = step.value_of(tensor), step.value_of(tensor.grad)
        if gradient.kind == "activation":
            gradient.kind, gradient.of = "gradient", parameter
            gradient.type, gradient.shape = tensor.dtype, tuple(tensor.shape)


def written(step, loss, header):
    reached = {value.of for value in step.values if value.of is not None}
    last_reader = {}
    for place, (_, reads, _, _) in enumerate(step.ops):
        for value in reads:
            last_reader[id(value)] = place
    lines, told = [json.dumps(header | {"loss": loss.name})], set()

    def tell(value):
        if id(value) not in told:
            told.add(id(value))
            lines.append(json.dumps(value.line(loss)))

    used = {id(value) for _, reads, _, _ in step.ops for value in reads}
    for value in step.values:
        if value.kind == "parameter" and id(value) in used:
            value.trained = value in reached  # what no gradient reaches stays as it is
            tell(value)
    for place, (op, reads, writes, aliases) in enumerate(step.ops):
        for value in (*reads, *writes):
            tell(value)
        pairs = [[after.name, before.name] for after, before in aliases
                 if before.kind == "activation" and last_reader[id(before)] == place and before.bytes == after.bytes]
        op |= {"reads": [value.name for value in reads], "writes": [value.name for value in writes]}
        lines.append(json.dumps(op | ({"may_alias": pairs} if pairs else {})))
    return "\n".join(lines) + "\n"
