"""Inputs of the placement benchmark, as CSV files. NAME.CAPACITY.csv has a placement within CAPACITY bytes."""

import csv
import math
import random

SIDE = 1 << 20


def capacity_of(path):
    last = path.name.split(".")[-2]
    return int(last) if last.isdigit() else None


def write(folder, name, buffers):
    path = folder / f"{name}.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("id,lower,upper,size\n")
        file.writelines(f"{i},{lower},{upper},{size}\n" for i, (lower, upper, size) in enumerate(buffers))
    return path


def varied(paths, folder):
    """The same problems with the rows in another order, time running backwards and other sizes."""
    made = []
    for seed, path in enumerate(paths):
        with path.open(encoding="utf-8") as file:
            rows = [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
        end = max(upper for _, upper, _ in rows)
        for scale in (1, 3, 1000):
            buffers = [(end - upper, end - lower, size * scale) for lower, upper, size in rows]
            random.Random(seed + scale).shuffle(buffers)
            made.append(write(folder, f"{path.name.split('.')[0]}-times-{scale}.{capacity_of(path) * scale}", buffers))
    return made


def cut(rng, count, length):
    """A rectangle cut in two again and again, of a few pieces the largest: nothing is left free."""
    pieces = [(0, length, 0, SIDE)]
    while len(pieces) < count:
        at = max(rng.sample(range(len(pieces)), min(2, len(pieces))), key=lambda i: area(pieces[i]))
        first, last, low, high = pieces[at]
        if rng.random() < 0.5 and last - first > 1:
            middle = rng.randrange(first + 1, last)
            pieces[at:at + 1] = [(first, middle, low, high), (middle, last, low, high)]
        elif high - low > 1:
            middle = rng.randrange(low + 1, high)
            pieces[at:at + 1] = [(first, last, low, middle), (first, last, middle, high)]
    return pieces


def pinwheels(rng, count, length):
    """The same with pinwheels of five, which no straight cuts make."""
    pieces = [(0, length, 0, SIDE)]
    while len(pieces) < count:
        at = max(rng.sample(range(len(pieces)), min(3, len(pieces))), key=lambda i: area(pieces[i]))
        first, last, low, high = pieces[at]
        if last - first < 4 or high - low < 4:
            continue
        a, b = sorted(rng.sample(range(first + 1, last), 2))
        c, d = sorted(rng.sample(range(low + 1, high), 2))
        pieces[at:at + 1] = [(first, b, low, c), (b, last, low, d), (a, last, d, high), (first, a, c, high),
                             (a, b, c, d)]
    return pieces


def area(piece):
    first, last, low, high = piece
    return (last - first) * (high - low)


def generated(folder):
    """By title. The ones with holes lack every tenth piece, so that they need not be the bound's height."""
    groups = {"cut rectangles, without holes": [], "cut rectangles, a tenth of the pieces missing": []}
    for shape in (cut, pinwheels):
        for count in (100, 200, 400, 800):
            rng = random.Random(count)
            buffers = [(first, last, high - low) for first, last, low, high in shape(rng, count, max(60, count))]
            rng.shuffle(buffers)
            name = f"{shape.__name__}-{count}"
            whole, holed = groups.values()
            whole.append(write(folder, f"{name}.{SIDE}", buffers))
            holed.append(write(folder, f"{name}-holes.{SIDE}", buffers[count // 10:]))
    groups["a training step of many layers"] = [write(folder, f"layers-{n}", layers(n)) for n in (24, 96, 1000)]
    groups["large"] = large(folder)
    return groups


def layers(count):
    """For some layers what lives from its forward to its backward, for each the short ones of its ops."""
    buffers = []
    for layer in range(count):
        forward, backward = 20 * layer, 20 * (2 * count - layer)
        if layer % 8 == 0:
            buffers.append((forward, backward + 20, 3 << 20))
        for op in range(20):
            size = 4096 << (op * 7 % 5)
            buffers.append((forward + op, forward + op + 1 + op % 4, size))
            buffers.append((backward + op, backward + op + 2 + op % 3, size + 512))
    return buffers


def large(folder):
    """18,000 to 62,000 buffers of six kinds. Only the last kind's bound is known to be reached."""
    made = {"sharded-18000": sharded(random.Random(1), 18_000), "sharded-36000": sharded(random.Random(2), 36_000),
            "sharded-62000": sharded(random.Random(3), 62_000), "power-law-20000": power_law(random.Random(4), 20_000),
            "power-law-60000": power_law(random.Random(5), 60_000), "nested-30000": nested(random.Random(6), 30_000),
            "classes-40000": size_classes(random.Random(7), 40_000), "pipeline-24": pipeline(random.Random(8), 24, 16),
            "cut-20000": [piece_buffer(piece) for piece in cut(random.Random(9), 20_000, 20_000)]}
    return [write(folder, name, buffers) for name, buffers in made.items()]


def piece_buffer(piece):
    first, last, low, high = piece
    return first, last, high - low


def sharded(rng, count):
    """A training step whose tensors are cut into random powers of two, and one byte more each: parameters, ops'
    short tensors with a few very large ones among them, and what lives on into the backward pass."""
    def shard(size):
        return (size >> rng.choice((0, 0, 1, 2, 3, 3, 4, 6))) + 1

    usual = (4, 8, 129, 512, 3072, 12 << 10, 48 << 10, 192 << 10, 384 << 10, 768 << 10, 3 << 20, 6 << 20)
    parameters = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 12 << 20)
    scale = math.sqrt(18_000 / count)  # of what is kept
    forward, backward, end = count, 2 * count, 2 * count + count // 2
    buffers = [(0, backward - backward // 4, shard(int(scale * rng.choice(parameters)))) for _ in range(count // 16)]
    while len(buffers) < count:
        at = rng.randrange(end)
        kind = rng.random()
        if at < forward and kind < 0.1:
            mirrored = backward - at * (backward - forward) // forward
            last = mirrored if rng.random() < 0.5 else rng.randrange(forward, backward)
            buffers.append((at, last + rng.randrange(1, 200), shard(int(scale * rng.choice(usual)))))
        elif at >= backward - backward // 4 and kind < 0.05:
            buffers.append((at, rng.randrange(at, end) + 1, shard(int(scale * rng.choice(parameters)))))
        else:
            size = (48 << 20) << rng.randrange(3) if kind > 0.997 else rng.choice(usual)
            buffers.append((at, at + rng.choice((4, 4, 4, 4, 5, 6, 9, 14, 30)), shard(size)))
    return buffers


def power_law(rng, count):
    """Starts at random, most lives short and most buffers small, a few a thousand times longer or larger."""
    buffers = []
    for _ in range(count):
        first = rng.randrange(count)
        life = min(count, int(4 * rng.paretovariate(0.8)))
        buffers.append((first, first + life, min(1 << 28, int(512 * rng.paretovariate(0.6)))))
    return buffers


def nested(rng, count):
    """What a recursion holds: each call's buffers live while it runs, but for a tenth that outlive their caller."""
    buffers, clock, open_calls = [], 0, []
    while len(buffers) < count:
        clock += 1
        if open_calls and (len(open_calls) > 40 or rng.random() < 0.49):
            for first, size in open_calls.pop():
                kept = rng.randrange(1, 400) if rng.random() < 0.1 else 0
                buffers.append((first, clock + kept, size))
        else:
            open_calls.append([(clock, rng.randrange(1, 1 << rng.randrange(8, 24))) for _ in range(rng.randrange(1, 6))])
    return buffers


def size_classes(rng, count):
    """A server's requests: twelve sizes, lives drawn over five orders of magnitude."""
    sizes = [256 * int(1.9 ** i) for i in range(12)]
    buffers = []
    for i in range(count):
        life = int(10 ** rng.uniform(0, 4.3))
        buffers.append((i, i + life, rng.choice(sizes)))
    return buffers


def pipeline(rng, layers_count, batches):
    """Micro-batches through layers, forward and backward by turns: a batch's activations live between the two."""
    ops = [(rng.choice((1, 1, 2, 3, 6)), 4096 * rng.choice((1, 5, 8, 20, 64, 80)), rng.random() < 0.25) for _ in range(26)]
    buffers = [(0, 10 ** 6, 4096 * rng.randrange(1, 2000)) for _ in range(8 * layers_count)]
    clock, begun = 0, {}
    for batch, layer, forward in one_forward_one_backward(layers_count, batches):
        for number, (life, size, kept) in enumerate(ops):
            clock += 1
            if kept and forward:
                begun[batch, layer, number] = clock
            elif kept:
                buffers.append((begun[batch, layer, number], clock, size))
            else:
                buffers.append((clock, clock + life + forward, size))
    end = max(last for _, last, _ in buffers[8 * layers_count:])
    return [(first, min(last, end), size) for first, last, size in buffers]


def one_forward_one_backward(layers_count, batches):
    """The order in which a stage with four batches under way computes (batch, layer, is it the forward)."""
    for turn in range(batches + 4):
        if turn < batches:
            yield from ((turn, layer, True) for layer in range(layers_count))
        if turn >= 4:
            yield from ((turn - 4, layer, False) for layer in reversed(range(layers_count)))
