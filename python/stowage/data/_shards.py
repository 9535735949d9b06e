"""Files of tokens: documents as they come, and shards of packed samples (version 8 of stowage/token_shards.h)."""

import mmap
import os
import struct
import sys
from array import array

MAGIC, VERSION, HEADER_INTEGERS = 20261128, 8, 256
MOST_TOKENS = 2**31 - 1


class Spool:
    """Documents one behind the other, on the disk; in memory a document has its length and its place. `folder` is the caller's to remove."""

    def __init__(self, folder):
        self._names = os.path.join(folder, "tokens"), os.path.join(folder, "marks")
        self._files = [open(name, "wb") for name in self._names]
        self.lengths = array("i")
        self.places = array("q")
        self._size = 0

    def append(self, lengths, tokens, marks):
        """Adds documents: `lengths` of them and their tokens are arrays of 32-bit integers, `marks` a byte for each token."""
        tokens.tofile(self._files[0])
        self._files[1].write(marks)
        for length in lengths:
            self.places.append(self._size)
            self._size += length
        self.lengths.extend(lengths)

    def close(self):
        for file in self._files:
            file.close()

    def finish(self):
        """Ends the writing. Returns views of the tokens' bytes and of the marks. Requires a document."""
        self.close()
        views = []
        for name in self._names:
            with open(name, "rb") as written:
                views.append(memoryview(mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)))
        return views


def write_shard(path, samples, sequence, padding, documents):
    """Writes samples, lists of (place, length) of documents, of which each sample has at most `sequence` tokens. `documents`: views of tokens
    and marks, as Spool.finish returns them. Each padding token is a document of its own."""
    tokens, marks = documents
    filler = array("i", [padding]) * sequence
    whole = [sum(length for _, length in sample) for sample in samples]
    with open(path, "xb") as file:
        file.write(struct.pack(f"<{HEADER_INTEGERS}i", MAGIC, VERSION, len(samples) * sequence, sequence, *[0] * (HEADER_INTEGERS - 4)))
        for sample, used in zip(samples, whole):
            for place, length in sample:
                file.write(tokens[4 * place:4 * (place + length)])
            file.write(memoryview(filler)[used:])
        for sample, used in zip(samples, whole):
            begins, begin = array("i"), 0
            for _, length in sample:
                begins.extend(array("i", [begin]) * length)
                begin += length
            begins.extend(range(used, sequence))
            file.write(begins)
        for sample, used in zip(samples, whole):
            for place, length in sample:
                file.write(marks[place:place + length])
            file.write(bytes(sequence - used))


def require_little_endian():
    """Raises OSError on a machine whose integers are not those of a shard."""
    if sys.byteorder != "little" or array("i").itemsize != 4:
        raise OSError("token shards are written on little-endian machines with 32-bit int alone")
