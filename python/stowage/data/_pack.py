"""First-fit decreasing: documents into samples of one length."""

import random


def packed(lengths, sequence, draw):
    """Returns samples as lists of indices into `lengths`, in an order that `draw` (a random.Random) decides, as it does among documents of
    one length. Each document goes into the first sample with room, the longest documents first. Requires lengths from 1 to `sequence`."""
    order = list(range(len(lengths)))
    draw.shuffle(order)
    order.sort(key=lengths.__getitem__, reverse=True)
    samples = _first_fit(order, lengths, sequence)
    draw.shuffle(samples)
    return samples


def unpacked(lengths, draw):
    """Returns a sample for each document, in an order that `draw` decides."""
    samples = [[index] for index in range(len(lengths))]
    draw.shuffle(samples)
    return samples


def _first_fit(order, lengths, sequence):
    """A tree over the samples finds the first one with room: `room[node]` is the most room below it, and leaf i is at `leaves` + i. Samples
    that have not been opened have all of it, so that one with room is always found."""
    leaves = 1
    while leaves < len(order):
        leaves *= 2
    room = [sequence] * (2 * leaves)
    samples = []
    for index in order:
        length, node = lengths[index], 1
        while node < leaves:
            node *= 2
            if room[node] < length:
                node += 1
        if node - leaves == len(samples):
            samples.append([])
        samples[node - leaves].append(index)
        room[node] -= length
        while node > 1:
            node //= 2
            most = max(room[2 * node], room[2 * node + 1])
            if room[node] == most:
                break
            room[node] = most
    return samples
