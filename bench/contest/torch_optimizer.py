"""AdamW for bf16 parameters, with master weights and moments in fp32, which torch.optim has not."""

import torch

CHUNK = 64 << 20  # parameters, whose gradients are there in fp32 at one time


def adamw(groups, learning):
    return torch.optim.AdamW(
        groups,
        lr=learning["learning_rate"],
        betas=(learning["beta1"], learning["beta2"]),
        eps=learning["epsilon"],
        fused=True,
    )


def chunks_of(parameters, most=CHUNK):
    """Consecutive parameters of about `most` elements together."""
    chunk, size = [], 0
    for parameter in parameters:
        if chunk and size + parameter.numel() > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(parameter)
        size += parameter.numel()
    yield chunk


class MasterAdamW:
    """One fused AdamW for each chunk, so that fp32 gradients never exist of all parameters at once. `norm`: the gradients'
    at the last step, before they were clipped, as a tensor."""

    def __init__(self, parameters, groups_of, learning):
        self.learning, self.norm = learning, None
        self.chunks = []
        for chunk in chunks_of(list(parameters)):
            masters = [parameter.detach().float() for parameter in chunk]
            self.chunks.append((chunk, masters, adamw(groups_of(masters, learning["weight_decay"]), learning)))

    @torch.no_grad()
    def step(self):
        """Clips the gradients by their global norm in fp32, updates the masters, rounds them to the parameters, and
        drops the gradients."""
        norms = []
        for chunk, _, _ in self.chunks:
            norms += torch._foreach_norm([parameter.grad for parameter in chunk], 2, dtype=torch.float32)
        self.norm = torch.linalg.vector_norm(torch.stack(norms))
        scale = (self.learning["clip"] / (self.norm + 1e-6)).clamp(max=1.0)
        for chunk, masters, optimizer in self.chunks:
            gradients = [torch.empty_like(master) for master in masters]
            torch._foreach_copy_(gradients, [parameter.grad for parameter in chunk])
            torch._foreach_mul_(gradients, scale)
            for parameter, master, gradient in zip(chunk, masters, gradients):
                master.grad, parameter.grad = gradient, None
            del gradients
            optimizer.step()
            torch._foreach_copy_(chunk, masters)
            for master in masters:
                master.grad = None


class ClippedAdamW:
    """For parameters that are their own masters: fp32 ones, also those that FSDP2 shards."""

    def __init__(self, parameters, groups_of, learning):
        self.parameters, self.clip, self.norm = list(parameters), learning["clip"], None
        self.optimizer = adamw(groups_of(self.parameters, learning["weight_decay"]), learning)

    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
