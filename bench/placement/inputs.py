"""Inputs of the placement benchmark, as CSV files. NAME.CAPACITY.csv has a placement within CAPACITY bytes."""

import csv
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
