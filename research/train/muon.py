"""Muon (Jordan 2024): momentum whose 2-D updates are made near-orthogonal by a Newton-Schulz iteration.

For the matrices inside the blocks; the embedding and the norms keep AdamW. Matrices of one shape are
orthogonalised together, as one batch.
"""
import torch


def orthogonalise(g, steps=5):
    """g: [batch, rows, cols]; returns about U V^T of each."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(tuple(p.shape), []).append(p)
            for (rows, cols), members in shapes.items():
                momentum = []
                for p in members:
                    state = self.state[p]
                    if "buffer" not in state:
                        state["buffer"] = torch.zeros_like(p)
                    state["buffer"].mul_(group["momentum"]).add_(p.grad, alpha=1 - group["momentum"])
                    momentum.append(p.grad.lerp(state["buffer"], group["momentum"]))
                update = orthogonalise(torch.stack(momentum))
                scale = max(1.0, rows / cols) ** 0.5
                for p, u in zip(members, update):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"] * scale)
