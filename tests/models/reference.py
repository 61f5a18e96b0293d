"""Write expected.json: what PyTorch computes for the cases. To be run where PyTorch is, and weft need not be:

    build/peers/torch/bin/python tests/models/reference.py [CASE...]

`./dev bench slice --peers` makes that environment. For each case and precision (bfloat16 by autocast): the losses of
all steps, and digests of the first step's gradients. Those in float64 are what others are compared with.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, EXPECTED, STEPS, digest


class Block(nn.Module):
    """Of a residual network, with torchvision's names."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        self.count = len(shapes)
        for k, (m, n, size, step) in enumerate(shapes, 1):
            setattr(self, f"conv{k}", nn.Conv2d(m, n, size, step, size // 2, bias=False))
            setattr(self, f"bn{k}", nn.BatchNorm2d(n))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for k in range(1, self.count + 1):
            y = getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(y))
            y = F.relu(y) if k < self.count else y
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, width=64, classes=1000, bottleneck=True):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.stages, inputs = len(blocks), width
        for stage, count in enumerate(blocks):
            layers = []
            for k in range(count):
                layers.append(Block(inputs, width << stage, 2 if stage and not k else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers=6, width=512, heads=8, vocabulary=8192, context=256):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln(x), self.tokens.weight)


class LSTM(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in itertools.pairwise(sizes))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


MODELS = {"resnet": ResNet, "gpt": GPT, "lstm": LSTM, "mlp": MLP}


def train(case, precision):
    """Losses of all steps, and digests of the first gradients."""
    net = MODELS[case.model](**dict(case.sizes))
    with torch.no_grad():
        for name, x in net.state_dict().items():
            if x.is_floating_point():
                x.copy_(torch.from_numpy(case.weight(name, tuple(x.shape))))
    x, labels = map(torch.from_numpy, case.data())
    if precision == "float64":
        net, x = net.double(), x.double() if case.tokens is None else x
    half = torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()
    optimizer = getattr(torch.optim, case.optimizer)(net.parameters(), **dict(case.options))
    losses, gradients = [], {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        with half:
            loss = F.cross_entropy(net(x).reshape(-1, case.classes), labels.reshape(-1))
        loss.backward()
        if not gradients:
            gradients = {name: digest(name, p.grad.numpy()) for name, p in net.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def main(names):
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    for name in names or CASES:
        case = CASES[name]
        known[name] = {}
        for precision in case.precisions:
            losses, gradients = train(case, precision)
            known[name][precision] = {"losses": losses, "gradients": gradients}
            print(name, precision, losses[0], losses[-1], flush=True)
        known = {name: known[name] for name in CASES if name in known}
        EXPECTED.write_text(dumped(known))


def dumped(known):
    """JSON with a line for each list, and numbers to nine digits."""
    parts = []
    for name, precisions in known.items():
        inner = []
        for precision, found in precisions.items():
            gradients = ",\n".join(f"  {json.dumps(k)}: {numbers(v)}" for k, v in found["gradients"].items())
            inner.append(
                f' "{precision}": {{"losses": {numbers(found["losses"])}, "gradients": {{\n{gradients}}}}}'
            )
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(inner) + "}")
    return "{" + ",\n".join(parts) + "}\n"


def numbers(values):
    return "[" + ", ".join(f"{v:.9g}" for v in values) + "]"


if __name__ == "__main__":
    main(sys.argv[1:])
