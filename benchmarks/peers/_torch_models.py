"""The workloads' networks in PyTorch: for PyTorch's own side, and exported for the runtimes that read ONNX."""

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, POSITIONS = 6, 512, 8, 2048, 8192, 256
HEAD = WIDTH // HEADS


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, middle: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * middle
        self.reduce = conv_norm(inputs, middle, 1)
        self.spread = conv_norm(middle, middle, 3, stride)
        self.expand = conv_norm(middle, outputs, 1)
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = F.relu(self.reduce(x))
        y = self.expand(F.relu(self.spread(y)))
        return F.relu(y + self.shortcut(x))


def resnet50() -> nn.Sequential:
    blocks, channels = [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for k in range(count):
            blocks.append(Bottleneck(channels, middle, 2 if stage and not k else 1))
            channels = 4 * middle
    stem = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def heads(self, x):
        """Queries, keys and values, [batch, heads, positions, 64] each."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, HEAD)
        return qkv.permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x, attended):
        x = x + self.project(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def forward(self, x):
        q, k, v = self.heads(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def cached(self, x, keys, values, position, mask):
        """One token; its keys and values are written into the cache."""
        q, k, v = self.heads(x)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        return self.rest(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))

    def appended(self, x, keys, values, mask):
        """One token behind a cache that is read only; also the new keys and values."""
        q, k, v = self.heads(x)
        all_keys, all_values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        return self.rest(x, F.scaled_dot_product_attention(q, all_keys, all_values, attn_mask=mask)), k, v


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def logits(self, x):
        return F.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.logits(x)

    def next_token(self, token, position, keys, values):
        mask = (torch.arange(POSITIONS) <= position).view(1, 1, 1, POSITIONS)
        x = self.tokens(token) + self.positions(position)
        for block, k, v in zip(self.blocks, keys, values, strict=True):
            x = block.cached(x, k, v, position, mask)
        return self.logits(x).argmax(-1)


class Decoder(nn.Module):
    """A step of decoding without side effects, for ONNX: the caller writes new keys and values into its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT()

    def forward(self, token, position, keys, values):
        known = (torch.arange(POSITIONS) < position).view(1, 1, 1, POSITIONS)
        mask = torch.cat([known, torch.ones(1, 1, 1, 1, dtype=torch.bool)], -1)
        x = self.gpt.tokens(token) + self.gpt.positions(position)
        new = []
        for k, block in enumerate(self.gpt.blocks):
            x, *written = block.appended(x, keys[k], values[k], mask)
            new.append(written)
        return self.gpt.logits(x), torch.stack([k for k, _ in new]), torch.stack([v for _, v in new])


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int = 10000, width: int = 650) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(vocabulary, width), nn.LSTM(width, width, 2)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.out(self.recurrent(self.embedding(tokens))[0])


def mlp() -> nn.Sequential:
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)
