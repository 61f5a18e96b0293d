"""Networks written once, in what weft and PyTorch have under the same names; for benchmarks of both."""


def networks(M, F, concat, upsample):
    """The builders by name: () -> (module, images, classes)."""

    class Block(M.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = M.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
            self.norm1 = M.BatchNorm2d(outputs)
            self.conv2 = M.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.norm2 = M.BatchNorm2d(outputs)
            self.short = None
            if stride > 1 or inputs != outputs:
                self.short = M.Sequential(
                    M.Conv2d(inputs, outputs, 1, stride=stride, bias=False), M.BatchNorm2d(outputs)
                )

        def forward(self, x):
            y = F.relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            return F.relu(y + (x if self.short is None else self.short(x)))

    class ResNet(M.Module):
        def __init__(self, counts=(2, 2, 2, 2)):
            super().__init__()
            self.stem = M.Sequential(
                M.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), M.BatchNorm2d(64), M.ReLU()
            )
            blocks, inputs = [], 64
            for k, count in enumerate(counts):
                for b in range(count):
                    blocks.append(Block(inputs, 64 << k, 2 if k and not b else 1))
                    inputs = 64 << k
            self.blocks, self.last = M.Sequential(*blocks), M.Linear(inputs, 10)

        def forward(self, x):
            x = F.max_pool2d(self.stem(x), 3, stride=2, padding=1)
            return self.last(self.blocks(x).mean((2, 3)))

    class Inverted(M.Module):
        def __init__(self, inputs, outputs, stride, expansion):
            super().__init__()
            inner, layers = inputs * expansion, []
            if expansion > 1:
                layers += [M.Conv2d(inputs, inner, 1, bias=False), M.BatchNorm2d(inner), M.ReLU6()]
            layers += [
                M.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=inner, bias=False),
                M.BatchNorm2d(inner),
                M.ReLU6(),
                M.Conv2d(inner, outputs, 1, bias=False),
                M.BatchNorm2d(outputs),
            ]
            self.body, self.adds = M.Sequential(*layers), stride == 1 and inputs == outputs

        def forward(self, x):
            y = self.body(x)
            return x + y if self.adds else y

    class MobileNet(M.Module):
        """Sandler et al. 2018, arXiv:1801.04381."""

        def __init__(self):
            super().__init__()
            layers = [M.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), M.BatchNorm2d(32), M.ReLU6()]
            inputs = 32
            for expansion, outputs, count, stride in (
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            ):
                for k in range(count):
                    layers.append(Inverted(inputs, outputs, 1 if k else stride, expansion))
                    inputs = outputs
            layers += [M.Conv2d(inputs, 1280, 1, bias=False), M.BatchNorm2d(1280), M.ReLU6()]
            self.body, self.last = M.Sequential(*layers), M.Linear(1280, 10)

        def forward(self, x):
            return self.last(self.body(x).mean((2, 3)))

    class Layer(M.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
            self.qkv, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
            self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

        def forward(self, x):
            n, t, c = x.shape
            qkv = self.qkv(self.norm1(x)).reshape((n, t, 3, self.heads, c // self.heads))
            q, k, v = (turned(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(turned(y, (0, 2, 1, 3)).reshape((n, t, c)))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class ViT(M.Module):
        """Dosovitskiy et al. 2020, arXiv:2010.11929, tiny."""

        def __init__(self, width=192, layers=12, heads=3, patch=8):
            super().__init__()
            self.patches = M.Conv2d(3, width, patch, stride=patch)
            self.layers = M.Sequential(*(Layer(width, heads) for _ in range(layers)))
            self.norm, self.last = M.LayerNorm(width), M.Linear(width, 10)

        def forward(self, x):
            y = self.patches(x)
            y = turned(y.reshape((y.shape[0], y.shape[1], -1)), (0, 2, 1))
            return self.last(self.norm(self.layers(y)).mean(1))

    def turned(x, axes):
        return x.permute(axes) if hasattr(x, "permute") else x.permute_dims(axes)

    class Twice(M.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.body = M.Sequential(
                M.Conv2d(inputs, outputs, 3, padding=1),
                M.BatchNorm2d(outputs),
                M.ReLU(),
                M.Conv2d(outputs, outputs, 3, padding=1),
                M.BatchNorm2d(outputs),
                M.ReLU(),
            )

        def forward(self, x):
            return self.body(x)

    class UNet(M.Module):
        """Ronneberger, Fischer, Brox 2015, arXiv:1505.04597, with padding; classes of the mean."""

        def __init__(self, width=24):
            super().__init__()
            self.down = M.Sequential(*(Twice(3 if not k else width << (k - 1), width << k) for k in range(4)))
            self.up = M.Sequential(*(Twice((width << k) * 3, width << k) for k in (2, 1, 0)))
            self.last = M.Conv2d(width, 10, 1)

        def forward(self, x):
            skips = []
            for k, layer in enumerate(self.down):
                x = layer(F.max_pool2d(x, 2) if k else x)
                skips.append(x)
            for layer, other in zip(self.up, reversed(skips[:-1]), strict=True):
                x = layer(concat([upsample(x), other], 1))
            return self.last(x).mean((2, 3))

    return {
        "resnet18": lambda: (ResNet(), (32, 3, 96, 96)),
        "mobilenet": lambda: (MobileNet(), (32, 3, 96, 96)),
        "vit": lambda: (ViT(), (16, 3, 96, 96)),
        "unet": lambda: (UNet(), (8, 3, 96, 96)),
    }


def weft_networks():
    """The builders for weft."""
    import weft as wf
    import weft.functional as F
    import weft.module as M

    def upsample(x):
        return wf.repeat(wf.repeat(x, 2, axis=2), 2, axis=3)

    return networks(M, F, lambda xs, axis: wf.concat(xs, axis=axis), upsample)
