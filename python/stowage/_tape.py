"""Records one real training step of a PyTorch model on the CPU as a tape: each operation with its arguments, to run again.

The step runs once as eager runs it, under a dispatch mode below autograd. A value of the tape is a storage from one write to the
next, as in the trace (stowage._capture) that the planner is asked about, so that the plan's places are those of the tape's values.
"""

import random
import sys
import warnings
import weakref
from contextlib import ExitStack, contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from stowage._capture import EMPTY, RECOMPUTES, SHAPE_ONLY, Step, changed_by, counts_of, key_of, loss_in, watched, written
from stowage._left_alone import tensors_in
from stowage._plan import Refused
from stowage._requirements import optimizer_of

# Ways to a tensor's bytes that are no operations.
UNSEEN = {"numpy", "tolist", "__array__", "__dlpack__"}


class Ref:
    """A strided view of a value."""

    def __init__(self, value, tensor):
        self.value, self.type = value, tensor.dtype
        self.size, self.stride, self.offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()

    def over(self, storage, byte):
        """The view of the value's bytes, which begin at byte `byte` of `storage`."""
        offset = byte // self.type.itemsize + self.offset
        return torch.empty(0, dtype=self.type).set_(storage, offset, self.size, self.stride)


class Shape:
    """An argument of which only the shape and the type are looked at, or a tensor without elements."""

    def __init__(self, tensor):
        self.type, self.size = tensor.dtype, tuple(tensor.shape)

    def tensor(self):
        return torch.zeros((), dtype=self.type).expand(self.size)


class Call:
    """An operation to run again."""

    def __init__(self, func, arguments, result, refs, changes, draws):
        self.func = func
        self.arguments = arguments  # args and kwargs, with Ref and Shape in the place of tensors
        self.results = refs  # Ref of each result in order; None: nothing to keep
        self.is_single = isinstance(result, torch.Tensor)
        self.changes = changes  # pairs of values after and before, written in place; the plan has both in the same bytes
        self.draws = draws  # takes numbers from the random generator
        self.runs = func._schema.name not in EMPTY


class Guard:
    """An answer that forward got from a value's bytes, and that all that follows may depend on."""

    def __init__(self, func, arguments, answer, value):
        self.func, self.arguments, self.answer, self.value = func, arguments, answer, value

    def holds(self, now):
        return type(now) is type(self.answer) and (now == self.answer or (now != now and self.answer != self.answer))


class Recorder(Step):
    """Step's record of real tensors, with what each operation needs to run again."""

    shape_only = {name for name in SHAPE_ONLY if "rand" not in name}  # these draw in the order of their argument's strides

    def __init__(self):
        super().__init__()
        self.calls, self.guards = [], []  # a call for each of `ops`
        self.sources = {}  # of an input or a parameter: the tensor that has its bytes
        self.outside = None  # the gradient of the loss, which the caller of backward() holds
        self.refusal = None  # found in backward

    def add(self, name, kind, tensor):
        value = super().add(name, kind, tensor)
        if kind == "activation":  # its storage goes when eager drops it
            value.storage = None
            weakref.finalize(tensor.untyped_storage(), self.newest.pop, key_of(tensor), None)
        return value

    def add_source(self, name, kind, tensor, source):
        value = self.add(name, kind, tensor)
        self.sources[value] = source
        return value

    def value_of(self, tensor):
        found = self.newest.get(key_of(tensor))
        return found if found is not None else self.add_source("constant", "input", tensor, tensor.detach())

    def refuse(self, why):
        self.refusal = self.refusal or f"offload: {self.module or 'the model'} {why}"
        if self.phase == "forward":
            raise Refused(self.refusal)

    def require_supported(self, func, args, kwargs, given, changed):
        for tensor in given:
            if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
                self.refuse(f"has a tensor that is not plain or not on the CPU ({func})")
        if has_dynamic_shape(func, args):
            self.refuse(f"has a shape that depends on values ({func})")
        if any(isinstance(argument, torch.Generator) for argument in tree_leaves((args, kwargs))):
            self.refuse(f"draws from a generator of its own ({func})")
        if "batch_norm" in func._schema.name and len(args) > 5 and isinstance(args[3], torch.Tensor) and True in args[5:6]:
            self.refuse("changes running statistics (batch norm), which is not supported yet")
        for tensor in changed:
            if tensor.numel() > 0 and self.value_of(tensor).kind in ("parameter", "input"):
                self.refuse(f"changes {self.value_of(tensor).name} in place ({func}), which is not supported yet")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        changed = changed_by(func, args, kwargs)
        self.require_supported(func, args, kwargs, given, changed)
        if self.phase == "forward":
            self.places[torch.autograd._get_sequence_nr() - 1] = (self.unit, self.module)
        else:
            self.find_place()
            self.find_recomputation()
        reads_bytes = func._schema.name not in self.shape_only
        before = {key_of(tensor): self.value_of(tensor) for tensor in given if reads_bytes and tensor.numel() > 0}
        state = torch.get_rng_state()
        result = func(*args, **kwargs)
        if any(value.bytes != max(1, tensor.untyped_storage().nbytes()) for tensor in given
               if (value := before.get(key_of(tensor))) is not None):
            self.refuse(f"changes the size of a tensor ({func})")
        self.note(func, args, kwargs, given, result, before, not torch.equal(state, torch.get_rng_state()))
        return result

    def note(self, func, args, kwargs, given, result, before, draws):
        if not tensors_in(result) and before and func._schema.returns:
            return self.note_guard(func, args, kwargs, before, result)
        count = len(self.ops)
        self.record(func, args, kwargs, given, result)
        if len(self.ops) == count:
            if draws:
                self.refuse(f"draws random numbers that no operation keeps ({func})")
            return
        op, reads, writes, aliases = self.ops[-1]
        op["kernel"] = str(func)  # a cast is an operation like others: weights have their own type on the tape
        self.ops[-1] = (op, [value for value in reads if value is not self.outside], writes, aliases)
        made = set(writes) - {after for after, _ in aliases}

        def ref(leaf):
            value = self.newest.get(key_of(leaf)) if isinstance(leaf, torch.Tensor) and leaf.numel() > 0 else None
            return Ref(value, leaf) if value in made else None

        arguments, refs = self.described((args, kwargs), before), [ref(leaf) for leaf in tree_leaves(result)]
        self.calls.append(Call(func, arguments, result, refs, aliases, draws))

    def note_guard(self, func, args, kwargs, before, answer):
        values = list({id(value): value for value in before.values()}.values())
        if self.phase == "backward" or len(values) != 1 or not isinstance(answer, (bool, int, float)):
            return self.refuse(f"looks at values ({func}), which is not supported here")
        self.guards.append(Guard(func, self.described((args, kwargs), before), answer, values[0]))

    @staticmethod
    def described(tree, before):
        def of(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            value = before.get(key_of(leaf)) if leaf.numel() > 0 else None
            return Shape(leaf) if value is None else Ref(value, leaf)
        return tree_map(of, tree)


class SeesAll(TorchFunctionMode):
    """Refuses what looks at bytes without an operation."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in UNSEEN:
            self.recorder.refuse(f"looks at values by Tensor.{func.__name__}(), which is not supported; leave it out of the step")
        return func(*args, **(kwargs or {}))


def has_dynamic_shape(func, args):
    """Whether values decide on the result's shape; of an index those that are booleans."""
    if func._schema.name not in ("aten::index", "aten::_unsafe_index"):
        return torch.Tag.dynamic_output_shape in func.tags
    return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1]))


def states_of_generators():
    numpy = sys.modules.get("numpy")
    return random.getstate(), [part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()] if numpy else None


@contextmanager
def generators_kept():
    """Takes torch's generator back afterwards, and refuses a step that draws from another."""
    others = states_of_generators()
    with torch.random.fork_rng(devices=[]):
        yield
    if states_of_generators() != others:
        raise Refused("offload: the step draws random numbers from Python or NumPy, which a tape cannot repeat; draw them from PyTorch")


MODULES_OWN = set(vars(torch.nn.Module())) - {"training"}


def attributes_of(module):
    return {name: value for name, value in vars(module).items() if name not in MODULES_OWN}


def items_of(container):
    """Identities of what is directly in it."""
    items = [*container.keys(), *container.values()] if isinstance(container, dict) else container
    return (sorted if isinstance(container, set) else list)(map(id, items))


@contextmanager
def attributes_kept(model):
    """Refuses a forward that changes attributes of the modules, which a tape does not."""
    before = [(name, module, attributes_of(module)) for name, module in model.named_modules()]
    contents = [(name, member, value, value.copy()) for name, _, kept in before for member, value in kept.items()
                if type(value) in (list, dict, set)]
    yield
    changed = [(name, member) for name, module, kept in before
               for member, value in attributes_of(module).items() if member not in kept or kept[member] is not value]
    changed += [(name, member) for name, member, value, copy in contents
                if items_of(value) != items_of(copy)]
    if changed:
        name, member = changed[0]
        raise Refused(f"offload: forward of {name or 'the model'} changes its attribute {member}, which a tape would not; leave that out of "
                      "training")


class Tape:
    """A recorded step."""

    def __init__(self, recorder, loss, header):
        self.calls, self.guards, self.sources = recorder.calls, recorder.guards, recorder.sources
        self.phases = [op["phase"] for op, _, _, _ in recorder.ops]
        self.operands = [[*reads, *writes] for _, reads, writes, _ in recorder.ops]
        self.writes = [writes for _, _, writes, _ in recorder.ops]
        self.trace = written(recorder, loss.value, header)
        self.loss, self.outside = loss, recorder.outside
        self.gradients = {}  # Ref by the parameter's place in `parameters`
        self.outputs = {}  # by name: a tree of Ref
        self.output_class = None
        self.first = None  # loss and gradients of the recorded run


def stand_ins(model, recorder):
    """By name: leaves that share the bytes of the model's parameters, and its buffers."""
    tensors, known = {}, {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in known:
            if parameter.untyped_storage().nbytes() != parameter.nbytes or key_of(parameter) in recorder.newest:
                raise Refused(f"offload: {name} shares its memory with other tensors; give it its own ({name}.data = {name}.data.clone())")
            known[id(parameter)] = parameter.detach().requires_grad_(parameter.requires_grad)
            recorder.add_source(name, "parameter", known[id(parameter)], parameter).trained = parameter.requires_grad
        tensors[name] = known[id(parameter)]
    for name, buffer in model.named_buffers(remove_duplicate=False):
        tensors[name] = buffer.detach()
        if buffer.numel() > 0 and key_of(buffer) not in recorder.newest:
            recorder.add_source(name, "input", tensors[name], tensors[name])
    return tensors, list(known.values())


def own_copies(leaves, recorder):
    """Of the batch: tensors that share no bytes with each other."""
    copies = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaf = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
            if leaf.numel() > 0:
                recorder.add_source(f"batch.{place}", "input", leaf, place)
        copies.append(leaf)
    return copies


def record(model, args, kwargs, loss, outputs, optimizer):
    """The tape of one step. The model's entry must run its own forward meanwhile. Throws Refused."""
    recorder = Recorder()
    tensors, parameters = stand_ins(model, recorder)
    given = dict(tensors)
    leaves, spec = tree_flatten((args, kwargs))
    args, kwargs = tree_unflatten(own_copies(leaves, recorder), spec)
    batch = kwargs if not args else args[0] if len(args) == 1 else args
    with ExitStack() as stack:
        for context in (generators_kept(), attributes_kept(model), watched(model, recorder), SeesAll(recorder), recorder, torch.enable_grad()):
            stack.enter_context(context)
        output = torch.func.functional_call(model, tensors, args, kwargs)
        value = loss_in(output, batch, loss)
        if loss is None and not isinstance(output, (torch.Tensor, dict)):
            raise Refused(f"offload: the model's output is a {type(output).__name__}; let it return its loss, a dictionary or a ModelOutput "
                          "(return_dict=True), or give loss=")
        kept = refs_of_outputs(output, outputs, recorder)
        if value.untyped_storage().nbytes() > 8:
            raise Refused("offload: the loss is an element of a larger tensor; take its sum or mean")
        at = Ref(recorder.newest[key_of(value)], value)
        take_gradients(value, recorder)
    if replaced := [name for name, tensor in tensors.items() if tensor is not given[name]]:
        raise Refused(f"offload: forward replaces {replaced[0]}, which is not supported yet")
    if recorder.recomputes:
        raise Refused(RECOMPUTES.format("a part of the model").replace("plan", "offload", 1))
    if recorder.refusal:
        raise Refused(recorder.refusal)
    gradients = name_gradients(recorder, parameters)
    tape = Tape(recorder, at, {"stowage_trace": 2, "loss": "", "optimizer": optimizer_of(optimizer, None)}
                | {name: count for name, count in counts_of(batch).items() if count > 0})
    tape.gradients, tape.outputs, tape.output_class = gradients, kept, type(output)
    tape.first = (value.detach(), {place: parameters[place].grad for place in gradients})
    return tape


def take_gradients(loss, recorder):
    """Backward, from a gradient of the loss that is the caller's."""
    recorder.phase = "backward"
    with _disable_current_modes():
        seed = torch.ones_like(loss)
    recorder.outside = recorder.add("gradient of the loss", "input", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss.backward(gradient=seed)


def refs_of_outputs(output, names, recorder):
    """By name: what of the model's output the caller keeps, with Ref in the place of tensors."""
    kept = {}
    for name in names:
        field = output.get(name) if hasattr(output, "get") else getattr(output, name, None)
        if field is None or not tensors_in(field):
            raise Refused(f"offload: outputs={name!r}, but the model's output has no tensor of that name")
        kept[name] = tree_map(lambda leaf: Ref(recorder.value_of(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf, field)
    return kept


def name_gradients(recorder, parameters):
    """Ref by the parameter's place."""
    found = {}
    for place, parameter in enumerate(parameters):
        if parameter.grad is None:
            continue
        value, gradient = recorder.value_of(parameter), recorder.value_of(parameter.grad)
        if gradient.kind != "activation" or gradient.bytes != value.bytes:
            raise Refused(f"offload: the gradient of {value.name} shares its memory with another tensor, which is not supported yet")
        gradient.kind, gradient.of = "gradient", value
        gradient.type, gradient.shape = parameter.dtype, tuple(parameter.shape)
        found[place] = Ref(gradient, parameter.grad)
    return found
