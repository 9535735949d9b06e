#!/usr/bin/env python3
"""Holds all of a card's memory but so many bytes, in a process of its own.

    ballast.py BYTES

prints {"free": …, "held": …} once BYTES are free, and again for each line that it reads, after taking or giving back
what other programs have changed since. It ends with its standard input. A program that starts then has BYTES for
everything: its context, the modules of its libraries, their workspaces and its tensors. Memory held within that
program would leave its context and libraries out of the account.
"""

import ctypes
import json
import subprocess
import sys

GRANULE = 2 << 20  # what the driver hands out
LARGEST = 1 << 30
SLACK = 2 * GRANULE  # that may be free above what was asked for: the driver does not place every last piece
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
END_SECONDS = 10  # for the driver to give back a card's memory


class Driver:
    """CUDA's driver, as far as memory goes. OSError where there is none, or it refuses."""

    def __init__(self, library="libcuda.so.1", ordinal=0):
        self.library = ctypes.CDLL(library)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        """The code, which is 0, or OUT_OF_MEMORY of an allocation."""
        code = getattr(self.library, name)(*arguments)
        if code != 0 and (name, code) != ("cuMemAlloc_v2", OUT_OF_MEMORY):
            raise OSError(f"{name} returned {code}")
        return code

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size):
        """An address, or None where there is no such piece. OSError for any other refusal."""
        address = ctypes.c_uint64()
        code = self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return None if code == OUT_OF_MEMORY else address.value

    def release(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))


def adjust(driver, pieces, leave):
    """Takes pieces, largest first, until less than a granule above `leave` is free; gives pieces back where less than
    `leave` is. `pieces`: (bytes, address) of what is held."""
    while pieces and driver.free_bytes() < leave:
        driver.release(pieces.pop()[1])
    size = LARGEST
    while size >= GRANULE:
        spare = driver.free_bytes() - leave
        address = driver.allocate(size) if spare >= size else None
        # The driver may take more than was asked for.
        if address is not None and driver.free_bytes() < leave:
            driver.release(address)
            address = None
        if address is None:
            size //= 2
        else:
            pieces.append((size, address))
    return {"free": driver.free_bytes(), "held": sum(held for held, _ in pieces)}


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    try:
        driver, pieces, leave = Driver(), [], int(sys.argv[1])
        print(json.dumps(adjust(driver, pieces, leave)), flush=True)
        for _ in sys.stdin:
            print(json.dumps(adjust(driver, pieces, leave)), flush=True)
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


class Ballast:
    """That process, as others see it. Use it in a `with`; `adjust` before each program that is measured."""

    def __init__(self, leave):
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except OSError:  # it has ended, with a request unread
            pass
        try:
            self.process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def adjust(self):
        """{"free", "held"} in bytes, or {"error"}."""
        try:
            if not self.first:
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            self.first = False
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            return {"error": f"the ballast ended: {error}"}


if __name__ == "__main__":
    sys.exit(main())
