"""Records one real training step of a PyTorch model on the CPU as a tape: each operation with its arguments, to run again.

The step runs once as eager runs it, under a dispatch mode below autograd. A value of the tape is a storage from one write to the
next, as in the trace (stowage._capture) that the planner is asked about, so that the plan's places are those of the tape's values.
"""

import ctypes
import hashlib
import random
import sys
import warnings
import weakref
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from stowage._capture import EMPTY, RECOMPUTES, SHAPE_ONLY, Step, changed_by, counts_of, key_of, loss_in, watched, written
from stowage._left_alone import Attributes, tensors_in
from stowage._numbers import TAKES, Number, is_number, numbers_in, with_plain_numbers
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

    takes_numbers = True
    shape_only = {name for name in SHAPE_ONLY if "rand" not in name}  # these draw in the order of their argument's strides

    def __init__(self):
        super().__init__()
        self.calls, self.guards = [], []  # a call for each of `ops`
        self.sources = {}  # of an input or a parameter: the tensor that has its bytes
        self.outside = None  # the gradient of the loss, which the caller of backward() holds
        self.buffers = set()  # values of the model's buffers
        self.on_host = set()  # of these, the ones that forward changes
        self.own = {}  # by identity: names of the model's parameters, which have stand-ins in the step
        self.number, self.numbers = None, {}  # the number that a function is given; of an autograd node's sequence number
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

    def leave_on_host(self):
        """Takes from the trace the buffers that forward changes, and the caller's gradient of the loss: an operation gets them where they
        are. What reads such a buffer is not computed again, since it would read another step of it."""
        for guard in self.guards:
            if guard.value in self.on_host:
                raise Refused(f"offload: forward looks at {guard.value.name} ({guard.func}), which it changes in each step; leave that out")
        for place, (op, reads, writes, aliases) in enumerate(self.ops):
            if op["phase"] == "forward" and self.on_host.intersection(reads):
                op["replayable"] = False
            self.ops[place] = (op, [value for value in reads if value not in self.on_host and value is not self.outside], writes, aliases)

    def require_supported(self, func, args, kwargs, given, changed):
        for tensor in given:
            if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
                self.refuse(f"has a tensor that is not plain or not on the CPU ({func})")
        if self.own and (reached := [self.own[id(tensor)] for tensor in given if id(tensor) in self.own]):
            self.refuse(f"reaches {reached[0]} by another way than the module that owns it ({func}); use it where it is registered")
        if has_dynamic_shape(func, args):
            self.refuse(f"has a shape that depends on values ({func})")
        if any(isinstance(argument, torch.Generator) for argument in tree_leaves((args, kwargs))):
            self.refuse(f"draws from a generator of its own ({func})")
        for value in (self.value_of(tensor) for tensor in changed if tensor.numel() > 0):
            if value in self.buffers and self.phase == "forward":
                self.on_host.add(value)
            elif value.kind in ("parameter", "input"):
                self.refuse(f"changes {value.name} in place ({func}), which is not supported; make a new tensor")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        changed = changed_by(func, args, kwargs)
        self.require_supported(func, args, kwargs, given, changed)
        if self.refusal:
            return func(*args, **kwargs)
        if self.phase == "forward":
            self.places[torch.autograd._get_sequence_nr() - 1] = (self.unit, self.module)
            if self.number is not None and torch.is_grad_enabled() and given[0].requires_grad:
                self.numbers[torch.autograd._get_sequence_nr() - 1] = self.number
        else:
            self.find_place()
            self.find_recomputation()
        reads_bytes = func._schema.name not in self.shape_only
        before = {key_of(tensor): self.value_of(tensor) for tensor in given if reads_bytes and tensor.numel() > 0}
        unchanged = [] if func.namespace in ("aten", "prims") else [(tensor, digest(tensor)) for tensor in given
                                                                     if not any(tensor is other for other in changed)]
        state = torch.get_rng_state()
        result = func(*args, **kwargs)
        if any(tensor.layout != torch.strided for tensor in tensors_in(result)):
            self.refuse(f"makes a tensor that is not plain ({func})")
            return result
        if any(digest(tensor) != before for tensor, before in unchanged):
            self.refuse(f"changes an argument of {func}, which the operation's schema does not say (mutates_args)")
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
        made = set(writes) - {after for after, _ in aliases}

        def ref(leaf):
            value = self.newest.get(key_of(leaf)) if isinstance(leaf, torch.Tensor) and leaf.numel() > 0 else None
            return Ref(value, leaf) if value in made else None

        number = self.number if self.number is not None or self.phase == "forward" else self.number_of_node()
        if number is not None and len(args) > 1:
            args = number._given(func, args)
        arguments, refs = self.described((args, kwargs), before), [ref(leaf) for leaf in tree_leaves(result)]
        self.calls.append(Call(func, arguments, result, refs, aliases, draws))

    def number_of_node(self):
        node = torch._C._current_autograd_node()
        return self.numbers.get(node._sequence_nr()) if node is not None else None

    def effect(self, name):
        return [self.add(f"{name}.changed", "activation", torch.empty(1, dtype=torch.uint8))]

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
    """Refuses what looks at bytes without an operation, and tells the recorder which number a function is given."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in UNSEEN:
            self.recorder.refuse(f"looks at values by Tensor.{func.__name__}(), which is not supported; leave it out of the step")
        numbers, kwargs = numbers_in((args, kwargs)), kwargs or {}
        if not numbers:
            return func(*args, **kwargs)
        number = numbers[0]
        number._taken = False
        self.recorder.number = number if getattr(func, "__name__", "") in TAKES and len(args) == 2 and not kwargs else None
        args, kwargs = with_plain_numbers((args, kwargs))
        try:
            return func(*args, **kwargs)
        finally:
            self.recorder.number = None
            for number in numbers[number._taken:]:
                number._look()


def bytes_of(tensor):
    """The bytes of the tensor's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def digest(tensor):
    """Of a tensor's elements."""
    tensor = tensor.contiguous()
    return hashlib.blake2b((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())).digest() if tensor.nbytes > 0 else b""


@contextmanager
def bytes_kept(tensors):
    """Takes back afterwards what their storages hold."""
    before = [(now, now.clone()) for now in map(bytes_of, tensors)]
    try:
        yield
    finally:
        for now, own in before:
            if not torch.equal(now, own):
                now.copy_(own)


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


@contextmanager
def attributes_kept(model):
    """Refuses a forward that changes attributes, parts or buffers of the modules, which a tape does not, and takes the change back."""
    before = Attributes(model)
    try:
        yield
        changed = before.changed()
    finally:
        before.restore()
    if changed is not None:
        name, member = changed
        raise Refused(f"offload: forward of {name or 'the model'} changes its attribute {member}, which a tape would not; leave that out of "
                      "training")


class First(NamedTuple):
    """What the recorded run gave."""

    loss: torch.Tensor
    gradients: dict  # by the parameter's place
    states: list  # of the generator, behind forward and behind backward


class Tape:
    """A recorded step."""

    def __init__(self, recorder, loss, header):
        self.calls, self.guards, self.sources = recorder.calls, recorder.guards, recorder.sources
        self.on_host = {value: recorder.sources[value] for value in recorder.on_host}  # buffers that the step changes where they are
        self.names = [op["op"] for op, _, _, _ in recorder.ops]
        self.constants = {}  # numbers among the arguments that forward looked at, by their places
        self.phases = [op["phase"] for op, _, _, _ in recorder.ops]
        self.operands = [[*reads, *writes] for _, reads, writes, _ in recorder.ops]
        self.writes = [writes for _, _, writes, _ in recorder.ops]
        self.trace = written(recorder, loss.value, header)
        self.loss, self.outside = loss, recorder.outside
        self.gradients = {}  # Ref by the parameter's place in `parameters`
        self.outputs = {}  # by name: a tree of Ref
        self.output_class = None
        self.has_operands = False  # numbers among the arguments that operations take
        self.first = None

    def other_numbers(self, leaves):
        """Places in the batch of numbers that forward looked at, and that are others now."""
        return [place for place, value in self.constants.items() if repr(leaves[place]) != repr(value)]

    def bytes_of_outputs(self):
        refs = [leaf for leaf in tree_leaves(self.outputs) if isinstance(leaf, Ref)]
        return sum(torch.Size(ref.size).numel() * ref.type.itemsize for ref in refs)


def stand_ins(model, recorder):
    """Leaves that share the bytes of the model's parameters, and its buffers, each by the identity of what it stands for; parameters first."""
    known = {}
    for name, parameter in model.named_parameters():
        if parameter.untyped_storage().nbytes() != parameter.nbytes or key_of(parameter) in recorder.newest:
            raise Refused(f"offload: {name} shares its memory with other tensors; give it its own ({name}.data = {name}.data.clone())")
        recorder.own[id(parameter)] = name
        known[id(parameter)] = parameter.detach().requires_grad_(parameter.requires_grad)
        recorder.add_source(name, "parameter", known[id(parameter)], parameter).trained = parameter.requires_grad
    for name, buffer in model.named_buffers():
        known[id(buffer)] = buffer.detach()
        if buffer.numel() > 0 and key_of(buffer) not in recorder.newest:
            recorder.buffers.add(recorder.add_source(name, "input", known[id(buffer)], known[id(buffer)]))
    return known


@contextmanager
def standing_in(model, known):
    """The model with the stand-ins in the places of its own parameters and buffers."""
    places = [(members, name, own) for module in model.modules() for members in (module._parameters, module._buffers)
              for name, own in members.items() if id(own) in known]
    for members, name, own in places:
        members[name] = known[id(own)]
    try:
        yield
    finally:
        for members, name, own in places:
            if members.get(name) is known[id(own)]:
                members[name] = own


def own_copies(leaves, recorder):
    """Of the batch: tensors that share no bytes with each other, and numbers that say what looks at them."""
    copies = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaf = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
            if leaf.numel() > 0:
                recorder.add_source(f"batch.{place}", "input", leaf, place)
        copies.append(Number(leaf, place) if is_number(leaf) and recorder.takes_numbers else leaf)
    return copies


def record(model, args, kwargs, loss, outputs, optimizer):
    """The tape of one step. The model's forward must be its own meanwhile. loss: a function of the output, args and kwargs, or None. Throws
    Refused."""
    try:
        tape = record_once(Recorder(), model, args, kwargs, loss, outputs, optimizer)
        if not tape.has_operands or same_loss(tape, model, args, kwargs, loss):
            return tape
    except TypeError:  # by a function that takes no Number
        pass
    recorder = Recorder()
    recorder.takes_numbers = False
    return record_once(recorder, model, args, kwargs, loss, outputs, optimizer)


def same_loss(tape, model, args, kwargs, loss):
    """Whether forward takes the same way with plain numbers."""
    with torch.random.fork_rng(devices=[]), bytes_kept(list(model.buffers())), torch.enable_grad():
        return digest(loss_in(model(*args, **kwargs), (args, kwargs), loss).detach()) == digest(tape.first.loss)


def record_once(recorder, model, args, kwargs, loss, outputs, optimizer):
    known = stand_ins(model, recorder)
    parameters = [known[id(parameter)] for parameter in model.parameters()]
    leaves, spec = tree_flatten((args, kwargs))
    leaves = own_copies(leaves, recorder)
    args, kwargs = tree_unflatten(leaves, spec)
    with ExitStack() as stack:
        for context in (generators_kept(), bytes_kept(list(model.buffers())), attributes_kept(model), standing_in(model, known),
                        watched(model, recorder), SeesAll(recorder), recorder, torch.enable_grad()):
            stack.enter_context(context)
        output = model(*args, **kwargs)
        value = loss_in(output, (args, kwargs), loss)
        if loss is None and not isinstance(output, (torch.Tensor, dict)):
            raise Refused(f"offload: the model's output is a {type(output).__name__}; let it return its loss, a dictionary or a ModelOutput "
                          "(return_dict=True), or give loss=")
        kept = refs_of_outputs(output, outputs, recorder)
        if value.untyped_storage().nbytes() > value.nbytes:  # an element of a larger tensor
            value = value.clone()
        at = Ref(recorder.newest[key_of(value)], value)
        states = [state_of_generator()]
        take_gradients(value, recorder)
        states.append(state_of_generator())
    if recorder.recomputes:
        raise Refused(RECOMPUTES.format("a part of the model").replace("plan", "offload", 1))
    if recorder.refusal:
        raise Refused(recorder.refusal)
    recorder.leave_on_host()
    gradients = name_gradients(recorder, parameters)
    tape = Tape(recorder, at, {"stowage_trace": 2, "loss": "", "optimizer": optimizer_of(optimizer, None)}
                | {name: count for name, count in counts_of((args, kwargs)).items() if count > 0})
    tape.gradients, tape.outputs, tape.output_class = gradients, kept, type(output)
    numbers = numbers_in(leaves)
    tape.has_operands = any(not number._is_constant for number in numbers)
    tape.constants = {number._place: number._value for number in numbers if number._is_constant}
    tape.constants |= {place: leaf for place, leaf in enumerate(leaves) if is_number(leaf) and not numbers}
    tape.first = First(value.detach(), {place: parameters[place].grad for place in gradients}, states)
    return tape


def state_of_generator():
    with _disable_current_modes():
        return torch.get_rng_state()


def take_gradients(loss, recorder):
    """Backward, from a gradient of the loss that is the caller's."""
    recorder.phase = "backward"
    with _disable_current_modes():
        seed = torch.ones_like(loss)
    recorder.outside = recorder.add("gradient of the loss", "input", seed)
    with warnings.catch_warnings(), torch.autocast("cpu", enabled=False):
        warnings.simplefilter("ignore")
        # As torch.autograd.backward does, in which a function mode would be off.
        _engine_run_backward((loss,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def refs_of_outputs(output, names, recorder):
    """By name: what of the model's output the caller keeps, with Ref in the place of tensors."""
    kept = {}
    for name in names:
        field = output.get(name) if hasattr(output, "get") else getattr(output, name, None)
        if field is None or not tensors_in(field):
            raise Refused(f"offload: outputs={name!r}, but the model's output has no tensor of that name")
        for number in numbers_in(field):
            number._look()
        kept[name] = tree_map(lambda leaf: Ref(recorder.value_of(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf,
                              with_plain_numbers(field))
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
