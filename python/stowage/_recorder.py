"""Records the operations of a real training step, each with what it needs to run again, under a dispatch mode below autograd.

A value is a storage from one write to the next, as in the trace (stowage._capture) that the planner is asked about, so that the plan's
places are those of the recorded values.
"""

import ctypes
import hashlib
import weakref

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from stowage._capture import EMPTY, SHAPE_ONLY, Step, changed_by, key_of
from stowage._left_alone import tensors_in
from stowage._numbers import TAKES, numbers_in, with_plain_numbers
from stowage._plan import Refused

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


def has_dynamic_shape(func, args):
    """Whether values decide on the result's shape; of an index those that are booleans."""
    if func._schema.name not in ("aten::index", "aten::_unsafe_index"):
        return torch.Tag.dynamic_output_shape in func.tags
    return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1]))
