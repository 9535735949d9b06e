"""Runs a tape (stowage._tape) as its plan says: every value at its planned place in one arena, copies and operations in the plan's order.

The list of a plan's instructions is an order in which all of its waits hold, so one thread runs them one after another. The update
phase is left out: weights and gradients are on the host, where PyTorch's own optimizer changes them.
"""

import functools
import json

import torch
from torch.utils._pytree import tree_leaves, tree_map

from stowage._numbers import Given
from stowage._plan import Refused
from stowage._recorder import Ref, Shape, bytes_of, digest

POISON = 0xFF  # a NaN in each floating type, and no index


class GuardFailed(Exception):
    """Another answer than the one that was recorded: the tape is another step's."""


class OtherBits(Exception):
    """An operation gave other bits when it ran again in the same step."""


@functools.cache
def in_place_of(func):
    """The operation's form that writes its results where it is told, and the names of these arguments; None if the CPU has none of its own,
    but one that copies. Losses (reduction=) use their result's place for all elements before they sum them."""
    own = [(argument.name, str(argument.type)) for argument in func._schema.arguments]
    for name in func._overloadpacket.overloads() if "reduction" not in dict(own) else ():
        other = getattr(func._overloadpacket, name)
        arguments = other._schema.arguments
        outs = [argument.name for argument in arguments if argument.is_out]
        if len(outs) == len(func._schema.returns) > 0 and own == [(given.name, str(given.type)) for given in arguments if not given.is_out] \
                and torch._C._dispatch_has_kernel_for_dispatch_key(other.name(), "CPU"):
            return other, outs
    return None


def keep(func, results, kept):
    """Copies results, by their numbers, to their places."""
    for number, place in kept:
        result = results[number]
        if result.shape != place.shape or result.dtype != place.dtype:
            raise RuntimeError(f"offload: {func} has a result of another shape than in the recorded step")
        place.copy_(result)


class Poison:
    """Fills bytes that are dead with no numbers."""

    def __init__(self, part):
        self.part = part

    def __call__(self):
        self.part.fill_(POISON)


class Places:
    """Where a plan has the values of a tape."""

    def __init__(self, tape, plan):
        lines = [json.loads(line) for line in tape.trace.splitlines()]
        names = [line["tensor"] for line in lines if "tensor" in line]
        self.plan, self.lifetimes = plan, plan["lifetimes"]
        self.recorded = len(names)  # tensors behind these are the update phase's
        values = {value.name: value for operands in tape.operands for value in operands}
        self.values = [values[name] for name in names]
        self.place = {}  # bucket and offset in it, of a value
        self.inside = []  # values and their offsets, of a bucket
        for number, bucket in enumerate(plan["buckets"]):
            inside = [(self.values[tensor], offset) for tensor, offset in bucket["tensors"] if tensor < self.recorded]
            self.inside.append(inside)
            self.place |= {value: (number, offset) for value, offset in inside}
        self.op_of = self.recorded_ops(tape)

    def buckets_of(self, instruction):
        return {self.lifetimes[lifetime]["bucket"] for lifetime in instruction["uses"]}

    def recorded_ops(self, tape):
        """The tape's number of each operation of the plan's graph, which has sums of squares of the gradients between them: these alone
        touch a bucket without a recorded value."""
        launches = {step["op"]: self.buckets_of(step) for step in self.plan["instructions"] if step["kind"] == "launch"}
        own = [op for op in sorted(launches) if all(self.inside[bucket] for bucket in launches[op])]
        wanted = [{self.place[value][0] for value in operands} for operands in tape.operands]
        moved = any(self.place[after] != self.place[before] for call in tape.calls for after, before in call.changes)
        if [launches[op] for op in own] != wanted or moved:
            raise Refused("offload: the plan's operations are not the tape's; libstowage_plan.so is of another version than the package: install "
                          "Stowage again")
        return {op: number for number, op in enumerate(own)}

    def byte(self, lifetime, value):
        return self.lifetimes[lifetime]["offset"] + self.place[value][1]


class Program:
    """A tape's instructions over an arena, with all views made. Owns the host's bytes of activations that are offloaded."""

    poisoned = False  # true: bytes that no operation has written in the step, or that are dead, are no numbers

    def __init__(self, tape, plan, arena, verify=False):
        self.tape, self.plan, self.arena = tape, plan, arena
        self.verify = verify  # compares what runs again with the first time's bits
        self.resident = {}  # by frozen weight that has its place for the whole step: the version that is there, and its storage
        self.places = Places(tape, plan)
        self.offloaded = {}  # bytes of an activation on the host
        self.left = {}  # bytes of a gradient on the host, made anew in each step
        self.leaves, self.seed, self.results = [], None, {}
        self.states, self.digests = {}, {}  # by the number of a call: the generator's state if it draws; of its results if it runs again
        self.again = {step["op"] for step in plan["instructions"] if step["kind"] == "recompute"}
        self.followed = self.gradients_that_leave_by_copies()
        self.views, self.bytes_there = {}, {}
        halves = self.halves()
        self.steps = {True: halves, False: [[each for each in half if type(each) is not Poison] for half in halves]}  # by `poisoned`

    # --- a step

    def forward(self, leaves):
        """The loss and the outputs, by Ref. Throws GuardFailed, with nothing but the arena and the generator changed."""
        self.leaves = [torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf) if isinstance(leaf, torch.Tensor) else leaf
                       for leaf in leaves]
        self.results = {}
        if self.poisoned:
            self.arena.fill_(POISON)
            self.resident.clear()
        for guard in self.tape.guards:
            if guard.value in self.tape.sources:
                self.ask(guard, self.with_sources(guard.arguments))
        for instruction in self.steps[self.poisoned][0]:
            instruction()
        for ref in self.kept_refs():
            if ref.value in self.tape.sources:
                self.results[ref] = self.over_source(ref).clone()
        results, self.results = self.results, {}
        return results

    def backward(self, seed):
        """The gradients by the parameter's place."""
        self.seed = seed
        for instruction in self.steps[self.poisoned][1]:
            instruction()
        found = {place: ref.over(self.left[ref.value].untyped_storage(), 0) for place, ref in self.tape.gradients.items()}
        self.leaves, self.seed, self.left = [], None, {}
        return found

    # --- the values that are outside of the arena

    def source_bytes(self, value):
        source = self.tape.sources[value]
        if isinstance(source, int):
            return bytes_of(self.leaves[source])
        place, there = self.bytes_there.get(value, (None, None))  # they keep their storage, so nothing else can be at its place
        if place != source.data_ptr():
            there = bytes_of(source)
            self.bytes_there[value] = source.data_ptr(), there
        return there

    def over_source(self, ref):
        return ref.over(self.source_bytes(ref.value).untyped_storage(), 0)

    def with_sources(self, arguments):
        return tree_map(lambda leaf: self.over_source(leaf) if isinstance(leaf, Ref) else leaf, arguments)

    def host_bytes(self, value):
        owner = self.left if value.kind == "gradient" else self.offloaded
        if value not in owner:
            owner[value] = torch.empty(value.bytes, dtype=torch.uint8)
        return owner[value]

    def kept_refs(self):
        return [self.tape.loss, *(leaf for leaf in tree_leaves(self.tape.outputs) if isinstance(leaf, Ref))]

    # --- making it

    def gradients_that_leave_by_copies(self):
        """Buckets of gradients that the plan's copies bring to the host as a whole. Others leave where they are made."""
        moved = {}
        for step in self.plan["instructions"]:
            if step["kind"] == "offload":
                bucket = self.places.lifetimes[step["lifetime"]]["bucket"]
                begin, end = step.get("part") or (0, self.plan["buckets"][bucket]["bytes"])
                moved[bucket] = moved.get(bucket, 0) + end - begin
        buckets = self.plan["buckets"]
        return {bucket for bucket, count in moved.items() if buckets[bucket]["kind"] == "gradient" and count >= buckets[bucket]["bytes"]}

    def halves(self):
        steps = self.plan["instructions"]
        ran = [place for place, step in enumerate(steps) if step["kind"] in ("launch", "recompute")]
        turn = next(place for place in ran if steps[place]["kind"] == "recompute" or self.is_backward(steps[place]))
        ends = {}
        for lifetime in self.places.lifetimes:
            ends.setdefault(lifetime["end"], []).append(lifetime)
        residents = [number for number, lifetime in enumerate(self.places.lifetimes) if lifetime["end"] is None]
        halves = [copy for number in residents for copy in self.copies_in(number, None, is_resident=True)], []
        for place, step in enumerate(steps):
            half = halves[place >= turn]
            if step["kind"] in ("launch", "recompute") and step["op"] in self.places.op_of:
                half += self.call(step)
            elif step["kind"] == "prefetch" and place < ran[-1]:
                half += self.copies_in(step["lifetime"], step.get("part"))
            elif step["kind"] == "offload":
                half += self.copies_out(step["lifetime"], step.get("part"))
            half += [self.poison(lifetime) for lifetime in ends.get(place, ())]
        return halves

    def is_backward(self, step):
        number = self.places.op_of.get(step["op"])
        return number is not None and self.tape.phases[number] == "backward"

    def poison(self, lifetime):
        begin = lifetime["offset"]
        return Poison(self.arena[begin:begin + self.plan["buckets"][lifetime["bucket"]]["bytes"]])

    def moved(self, lifetime, part):
        """The values of a lifetime that a copy moves: each with its bytes in the arena, and which of its bytes they are."""
        for value, offset in self.places.inside[self.places.lifetimes[lifetime]["bucket"]]:
            begin, end = (0, value.bytes) if part is None else (max(part[0] - offset, 0), min(part[1] - offset, value.bytes))
            if begin < end:
                at = self.places.byte(lifetime, value)
                yield value, self.arena[at + begin:at + end], begin, end

    def copies_in(self, lifetime, part, is_resident=False):
        copies = []
        for value, there, begin, end in self.moved(lifetime, part):
            if is_resident and value.kind == "parameter" and not value.trained:
                copies.append(lambda value=value, there=there: self.copy_if_changed(value, there))
            elif value in self.tape.sources:
                copies.append(lambda value=value, there=there, begin=begin, end=end: there.copy_(self.source_bytes(value)[begin:end]))
            elif value.kind in ("activation", "gradient"):
                copies.append(lambda value=value, there=there, begin=begin, end=end: there.copy_(self.host_bytes(value)[begin:end]))
        return copies

    def copy_if_changed(self, value, there):
        source = self.tape.sources[value]
        version, storage = self.resident.get(value, (None, None))
        if version != source._version or storage._cdata != source.untyped_storage()._cdata:
            there.copy_(self.source_bytes(value))
            self.resident[value] = source._version, source.untyped_storage()

    def copies_out(self, lifetime, part):
        copies = []
        bucket = self.places.lifetimes[lifetime]["bucket"]
        for value, there, begin, end in self.moved(lifetime, part):
            if value.kind == "activation" or (value.kind == "gradient" and bucket in self.followed):
                copies.append(self.copy_out(value, there, begin, end))
        return copies

    def copy_out(self, value, there, begin, end):
        return lambda: self.host_bytes(value)[begin:end].copy_(there)

    def call(self, step):
        """Runs an operation on its values' places, and what follows directly: answers asked again, and what leaves for the host."""
        number = self.places.op_of[step["op"]]
        call, again = self.tape.calls[number], step["kind"] == "recompute"
        lifetimes = {self.places.lifetimes[lifetime]["bucket"]: lifetime for lifetime in step["uses"]}

        def byte(value):
            return self.places.byte(lifetimes[self.places.place[value][0]], value)

        def view(leaf):
            if isinstance(leaf, Shape):
                return leaf.tensor()
            if not isinstance(leaf, Ref) or leaf.value is self.tape.outside:
                return leaf
            if leaf.value in self.tape.on_host:
                return self.over_source(leaf)
            return self.view(leaf, byte(leaf.value))

        made = []
        if call.runs:
            results = [view(ref) for ref in call.results]
            made.append(self.operation(number, call, tree_map(view, call.arguments), results, again))
            if step["op"] in self.again:
                changed = {before for _, before in call.changes}
                written = [view(leaf) for leaf in tree_leaves(call.arguments) if isinstance(leaf, Ref) and leaf.value in changed]
                made.append(self.comparison(number, [*filter(lambda result: result is not None, results), *written], again))
        for value in self.tape.writes[number] if not again else ():
            made += self.followers(value, view, byte)
        return made

    def view(self, ref, byte):
        key = (byte, ref.type, ref.size, ref.stride, ref.offset)
        if key not in self.views:
            self.views[key] = ref.over(self.arena.untyped_storage(), byte)
        return self.views[key]

    def operation(self, number, call, arguments, results, again):
        once = self.run_of(call, arguments, [(place, view) for place, view in enumerate(results) if view is not None])

        def keeping_state():
            self.states[number] = torch.get_rng_state()
            once()

        def replay():
            now = torch.get_rng_state()
            torch.set_rng_state(self.states[number])
            once()
            torch.set_rng_state(now)

        return once if not call.draws else replay if again else keeping_state

    def comparison(self, number, results, again):
        def compare():
            if not self.verify:
                return
            found = [digest(result) for result in results]
            if not again:
                self.digests[number] = found
            elif self.digests[number] != found:
                raise OtherBits(self.tape.names[number])
        return compare

    def run_of(self, call, arguments, kept):
        func, (args, kwargs) = call.func, arguments
        run = func._op  # without a Python function around it
        if any(isinstance(leaf, (Ref, Given)) for leaf in tree_leaves(arguments)):
            return lambda: keep(func, tree_leaves(run(*self.given_now(args), **self.given_now(kwargs))), kept)
        if not kept:
            return functools.partial(run, *args, **kwargs)
        writing = in_place_of(func)
        if writing is not None and len(kept) == len(writing[1]):
            return functools.partial(writing[0]._op, *args, **kwargs, **{name: view for name, (_, view) in zip(writing[1], kept)})
        if call.is_single:
            return lambda: keep(func, (run(*args, **kwargs),), kept)
        return lambda: keep(func, tree_leaves(run(*args, **kwargs)), kept)

    def given_now(self, tree):
        """With the loss's gradient, and the batch's numbers."""
        def now(leaf):
            if isinstance(leaf, Given):
                return self.leaves[leaf.place]
            return leaf.over(self.seed.untyped_storage(), 0) if isinstance(leaf, Ref) else leaf
        return tree_map(now, tree)

    def followers(self, value, view, byte):
        made = []
        for guard in self.tape.guards:
            if guard.value is value:
                made.append(lambda guard=guard, arguments=tree_map(view, guard.arguments): self.ask(guard, arguments))
        for ref in self.kept_refs():
            if ref.value is value:
                made.append(lambda ref=ref, here=view(ref): self.results.__setitem__(ref, here.clone()))
        if value.kind == "gradient" and self.places.place[value][0] not in self.followed:
            begin = byte(value)
            made.append(self.copy_out(value, self.arena[begin:begin + value.bytes], 0, value.bytes))
        return made

    @staticmethod
    def ask(guard, arguments):
        args, kwargs = arguments
        if not guard.holds(guard.func(*args, **kwargs)):
            raise GuardFailed
