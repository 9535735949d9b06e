"""What a snapshot in PyTorch's format must be: the types of its fields, and that its trace leads to its segments."""

SEGMENT = {"device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int,
           "requested_size": int, "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool,
           "frames": list, "blocks": list}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
ENTRY = {"action": str, "addr": int, "size": int, "stream": int, "time_us": int, "frames": list}
FAILURE = {"action": str, "device_free": int, "size": int, "stream": int, "time_us": int, "frames": list}
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": str, "max_split_size": int, "garbage_collection_threshold": float,
            "expandable_segments": bool, "pinned_num_register_threads": int, "release_lock_on_cudamalloc": bool,
            "pinned_use_cuda_host_register": bool, "roundup_power2_divisions": dict}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap", "oom"}


def check_fields(test, value, fields, exactly=True):
    test.assertIs(type(value), dict)
    if exactly:
        test.assertEqual(list(value), list(fields))
    for key, kind in fields.items():
        test.assertIs(type(value[key]), kind, key)


def check_types(test, snapshot):
    test.assertEqual(list(snapshot), ["segments", "device_traces", "allocator_settings", "external_annotations"])
    check_fields(test, snapshot["allocator_settings"], SETTINGS, exactly=False)
    test.assertEqual(snapshot["external_annotations"], [])
    for segment in snapshot["segments"]:
        check_fields(test, segment, SEGMENT)
        test.assertEqual([type(part) for part in segment["segment_pool_id"]], [int, int])
        test.assertIn(segment["segment_type"], ("small", "large"))
        for block in segment["blocks"]:
            check_fields(test, block, BLOCK)
            test.assertIn(block["state"], ("active_allocated", "active_pending_free", "inactive"))
    for trace in snapshot["device_traces"]:
        test.assertIs(type(trace), list)
        for entry in trace:
            check_fields(test, entry, FAILURE if entry["action"] == "oom" else ENTRY)
            test.assertIn(entry["action"], ACTIONS)
        times = [entry["time_us"] for entry in trace]
        test.assertGreater(min(times, default=1), 0)


def check_sums(test, snapshot):
    """Blocks tile their segments, and what segments say of them is their sum."""
    ends = {}
    for segment in sorted(snapshot["segments"], key=lambda s: s["address"]):
        at = segment["address"]
        test.assertGreaterEqual(at, ends.get(segment["device"], 0), "segments overlap")
        for block in segment["blocks"]:
            test.assertEqual(block["address"], at)
            test.assertGreater(block["size"], 0)
            test.assertLessEqual(block["requested_size"], block["size"])
            test.assertEqual(block["requested_size"] > 0, block["state"] == "active_allocated")
            at += block["size"]
        test.assertEqual(at - segment["address"], segment["total_size"])
        live = [b for b in segment["blocks"] if b["state"] == "active_allocated"]
        test.assertEqual(sum(b["size"] for b in live), segment["allocated_size"])
        test.assertEqual(sum(b["size"] for b in live), segment["active_size"])
        test.assertEqual(sum(b["requested_size"] for b in live), segment["requested_size"])
        ends[segment["device"]] = at


def totals(snapshot, device):
    """(reserved, allocated, requested) of a device."""
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    return tuple(sum(s[key] for s in segments) for key in ("total_size", "allocated_size", "requested_size"))


def check_trace(test, snapshot, device):
    """Undoes the trace from its end, as the viewer's "allocator state history" does: every block must lie in memory
    that is mapped then, every map and unmap must find what it says. Returns (blocks, mapped bytes) at its begin."""
    page = 512
    mapped, blocks = set(), {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        mapped.update(range(segment["address"] // page, (segment["address"] + segment["total_size"]) // page))
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                blocks[block["address"]] = block["size"]
    for entry in reversed(snapshot["device_traces"][device]):
        if entry["action"] == "oom":
            continue
        pages = range(entry["addr"] // page, (entry["addr"] + entry["size"]) // page)
        if entry["action"] == "alloc":
            test.assertEqual(blocks.pop(entry["addr"]), entry["size"])
        elif entry["action"] == "free_completed":
            test.assertNotIn(entry["addr"], blocks)
            test.assertTrue(mapped.issuperset(pages))
            blocks[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_requested":
            test.assertEqual(blocks[entry["addr"]], entry["size"])
        elif entry["action"] == "segment_map":
            test.assertTrue(mapped.issuperset(pages))
            mapped.difference_update(pages)
        elif entry["action"] == "segment_unmap":
            test.assertTrue(mapped.isdisjoint(pages))
            mapped.update(pages)
    return blocks, len(mapped) * page
