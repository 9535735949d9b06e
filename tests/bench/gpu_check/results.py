"""Made-up results of a card on which everything is well."""

BITS = [f"{0x4016000000000000 + i:016x}" for i in range(20)]


def run(budget, peak, seconds, steps=7, **setup):
    return {"code": 0, "seconds": 1.0,
            "setup": {"shape": {"model": "gpt", "type": "bf16"}, "model_flops": 5e13, "tokens_per_step": 65536,
                      "need_bytes": 4000, "budget_bytes": budget, "overhead_bytes": 20, "host_budget_bytes": 9000,
                      "seconds": {"open": 1.0, "plan": 2.0},
                      "plan": {"device_peak_bytes": peak, "pinned_bytes": 5120, "lower_bound_seconds": 0.1, "predicted_step_seconds": 0.15,
                               "h2d_bytes": 10, "d2h_bytes": 5}, **setup},
            "steps": [{"step": i, "loss": 5.5, "loss_bits": BITS[i], "grad_norm_bits": BITS[-i], "seconds": seconds if i > 1 else 9.0,
                       "clipped": False, "stall_fraction": 0.1, "device_peak_bytes": peak, "device_used_bytes": peak + 10,
                       "device_overhead_bytes": 10} for i in range(steps)],
            "attention": {"cudnn": 24, "own": 0, "plain": 0, "refusals": []},
            "end": {"seconds": {"start": 3.0, "pin": 1.5, "steps": 4.0}, "host_bytes_per_second": [95e9, 94.25e9]}}


def bits_stage(model):
    budgets = {"unlimited": run("unlimited", 4000, 0.2, 20)}
    for budget in (1000, 1700, 2400, 3100):
        budgets[str(budget)] = run(budget, budget - 100, 0.2, 20)
    return {"shape": {"model": model, "type": "bf16"}, "runs": budgets}


def total(share):
    return {"bytes": int(55e9 * share), "copies": 9, "seconds": 1.0}


def test_result(name, **changes):
    return {"name": name, "labels": ["gpu"], "code": 0, "seconds": 1, "passed": 5, "failed": 0, "skipped": 0,
            "failures": [], "tail": "", **changes}


def trainer_run(peak):
    return {"code": 0, "steps": [{"step": i, "loss": 5.5 - i, "grad_norm": 1.5, "device_peak_bytes": peak}
                                 for i in range(5)]}


def torch_run(**end):
    return {"code": 0, "steps": [{"step": i, "loss": 5.5, "loss_bits": f"0x1.{i}p+2", "seconds": 0.1} for i in range(4)],
            "end": {"torch": "2.11", "nvml_bytes": 4 << 30, **end}}


def interposer():
    return {"limit_bytes": 3000, "plain": torch_run(), "limited": torch_run(), "cached": torch_run(),
            "record": {"allocations": 9, "peak_bytes": 2990, "spilled_bytes": 1000}, "report_bytes": 5000,
            "replay": {"code": 0, "errors": ""}}


def pluggable():
    backends = {"native": "native", "expandable": "native", "cudaMallocAsync": "cudaMallocAsync", "stowage": "pluggable"}
    return {name: torch_run(graph_losses=["0x1.1p+2"], backend=backend) for name, backend in backends.items()}


def contest(peers=("stowage", "fsdp2")):
    ran = [{"case": "3.4B", "peer": peer, "status": "ran", "why": "", "tokens_per_second": 1e3, "bytes_above": 0}
           for peer in peers]
    return {"code": 0, "errors": "", "result": {"results": ran, "summary": {"losses_apart": [
        {"case": "3.4B", "peer": "fsdp2", "steps": 8, "apart": 0.02, "first_apart": 0.001}]}}}


def timed(**of):
    return {"runs": [{"name": "op_times", "code": 0, "seconds": 1.0, "errors": ""}],
            "lines": [{"model": "a", "name": "up", "what": "hit", "by": "stowage", "bytes": 8, "tiles": 4, "workspace_bytes": 9, "flops": 1e9,
                       "request_seconds": 1e-6, "release_seconds": 1e-6, "seconds": [0.1] if not of else 0.1, **of}]}


def good_card():
    machine = {"device": "card", "backend": "cuda", "h2d": {"bytes_per_second": 55e9},
               "d2h": {"bytes_per_second": 55e9}, "matrix": [{"type": "bf16", "flops_per_second": 600e12}]}
    copies = {way: {"bucketed": total(0.97), "per_tensor": total(0.6)} for way in ("h2d", "d2h")}
    pair = {"unlimited": run("unlimited", 4000, 0.19), "quarter": run(1000, 900, 0.20)}
    again = {"unlimited": run("unlimited", 4000, 0.30), "quarter": run(1000, 900, 0.33)}
    stages = {
        "smoke": {"resolve": {"files": 20, "faults": {}}, "calibrate": {"code": 0, "errors": "", "machine": machine},
                  "step": run("unlimited", 4000, 0.1, 1), "cudnn_log": "cudnn.log"},
        "calibrate": {"code": 0, "machine": machine},
        "tests": [test_result("device_conformance_test"), test_result("cuda_kernels_test")],
        "sanitizer": {"tool": "compute-sanitizer", "runs": [test_result("cuda_kernels_test", check="memcheck")]},
        "bits": [bits_stage("gpt"), bits_stage("bert")],
        "gpt2": pair, "bert": again,
        "large": {"without_offload": {"code": 3, "infeasible": {"op": "x"}},
                  "bucketed": {**run(1000, 900, 0.4), "copies": copies}, "per_tensor": run(1000, 900, 0.5),
                  "bucketed_again": run(1000, 900, 0.4), "per_tensor_again": run(1000, 900, 0.5)},
        "6.7b": {"budget_bytes": 1000, "offloaded": run(1000, 900, 0.9, 10)},
        "6.7b-doubled": {"budget_bytes": 1000, "offloaded": run(1000, 900, 1.1, 10)},
        "6.7b-8bit": {"budget_bytes": 1000, "offloaded": run(1000, 900, 0.8, 10)},
        "6.7b-whole": {"unlimited": run("unlimited", 4000, 0.7, 10)},
        "slices": timed(same_bits=True), "allocator": timed(), "products": timed(),
        "trainer": {"code": 0, "unlimited": trainer_run(4000), "smaller": trainer_run(3000)},
        "interposer": interposer(), "pluggable": pluggable(), "contest": contest(),
        "whole": contest(("stowage", "pytorch")), "zero3": contest(("stowage", "zero3-super"))}
    return {"card": True, "speed": True, "asked": list(stages), "runs": [{"seconds": 400.0}], "stages": stages}
