"""Graphs of well-known networks for images, shapes only: forward, and one step of training.

Sources: AlexNet: Krizhevsky 2014, arXiv:1404.5997 (one tower). VGG-16: Simonyan, Zisserman 2014, arXiv:1409.1556,
configuration D. GoogLeNet: Szegedy et al. 2014, arXiv:1409.4842, without the auxiliary outputs. ResNet-50: He et al.
2015, arXiv:1512.03385, with the stride in the 3x3 convolution.
"""

from __future__ import annotations

import weft.ops.functions as F
from weft.base.dtype import float32, int64
from weft.graph.gradient import joint_graph
from weft.graph.graph import Graph
from weft.ops.node import input_value
from weft.ops.types import TensorType


class Builder:
    """Builds one network; parameters become inputs as layers are added. training: with losses and batch statistics."""

    def __init__(self, batch=64, size=224, training=False):
        self.training = training
        self.image = input_value(TensorType((batch, 3, size, size), float32), "image")
        self.target = input_value(TensorType((batch,), int64), "target")
        self.parameters = []
        self.states = []  # (input, its new value)

    def parameter(self, *shape):
        self.parameters.append(input_value(TensorType(shape, float32), f"p{len(self.parameters)}"))
        return self.parameters[-1]

    def conv(self, x, channels, kernel, stride=1, padding=0, bias=True):
        weight = self.parameter(channels, x.shape[1], kernel, kernel)
        inputs = [x, weight, self.parameter(channels)] if bias else [x, weight]
        return F.conv2d(*inputs, stride=stride, padding=padding)

    def conv_relu(self, x, channels, kernel, stride=1, padding=0):
        return F.relu(self.conv(x, channels, kernel, stride, padding))

    def conv_norm(self, x, channels, kernel, stride=1, padding=0):
        y = self.conv(x, channels, kernel, stride, padding, bias=False)
        c = (channels,)
        mean, var = (input_value(TensorType(c, float32), f"s{len(self.states) + k}") for k in range(2))
        scale, shift = self.parameter(*c), self.parameter(*c)
        y = F.batch_norm(y, mean, var, scale, shift, training=self.training)
        node = y.node
        new = node.outputs[-2:] if self.training else (mean, var)
        self.states += [(mean, new[0]), (var, new[1])]
        return y

    def linear(self, x, features):
        return F.linear(x, self.parameter(features, x.shape[1]), self.parameter(features))

    def classifier(self, x, features=(4096, 4096), classes=1000):
        x = F.reshape(x, (x.shape[0], -1))
        for width in features:
            x = F.relu(self.linear(x, width))
            if self.training:
                x = F.dropout(x, training=True)
        return self.linear(x, classes)


def alexnet(b):
    x = F.max_pool2d(b.conv_relu(b.image, 64, 11, 4, 2), kernel_size=3, stride=2)
    x = F.max_pool2d(b.conv_relu(x, 192, 5, 1, 2), kernel_size=3, stride=2)
    for channels in (384, 256, 256):
        x = b.conv_relu(x, channels, 3, 1, 1)
    return b.classifier(F.max_pool2d(x, kernel_size=3, stride=2))


def vgg16(b):
    x = b.image
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = b.conv_relu(x, channels, 3, 1, 1)
        x = F.max_pool2d(x, kernel_size=2, stride=2)
    return b.classifier(x)


INCEPTIONS = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(b):
    x = F.max_pool2d(b.conv_relu(b.image, 64, 7, 2, 3), kernel_size=3, stride=2, padding=1)
    x = b.conv_relu(b.conv_relu(x, 64, 1), 192, 3, 1, 1)
    x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
    for widths in INCEPTIONS:
        if widths is None:
            x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
            continue
        one, three_in, three, five_in, five, pool = widths
        x = F.concat(
            [
                b.conv_relu(x, one, 1),
                b.conv_relu(b.conv_relu(x, three_in, 1), three, 3, 1, 1),
                b.conv_relu(b.conv_relu(x, five_in, 1), five, 5, 1, 2),
                b.conv_relu(F.max_pool2d(x, kernel_size=3, stride=1, padding=1), pool, 1),
            ],
            axis=1,
        )
    return b.classifier(F.avg_pool2d(x, kernel_size=x.shape[2]), features=())


def resnet50(b):
    x = F.max_pool2d(F.relu(b.conv_norm(b.image, 64, 7, 2, 3)), kernel_size=3, stride=2, padding=1)
    for stage, (channels, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = F.relu(b.conv_norm(x, channels, 1))
            y = F.relu(b.conv_norm(y, channels, 3, stride, 1))
            y = b.conv_norm(y, 4 * channels, 1)
            short = x if block else b.conv_norm(x, 4 * channels, 1, stride)
            x = F.relu(y + short)
    return b.classifier(F.avg_pool2d(x, kernel_size=x.shape[2]), features=())


NETWORKS = {"alexnet": alexnet, "googlenet": googlenet, "vgg16": vgg16, "resnet50": resnet50}


def prediction_graph(name, batch=64, size=224):
    """The classes' scores of a batch of images."""
    b = Builder(batch, size)
    scores = NETWORKS[name](b)
    return Graph([b.image, *b.parameters, *(state for state, _ in b.states)], [scores])


def training_graph(name, batch=64, size=224, rate=0.01):
    """A step of gradient descent: the loss; parameters and running statistics are written."""
    b = Builder(batch, size, training=True)
    loss = F.cross_entropy(NETWORKS[name](b), b.target)
    states = [state for state, _ in b.states]
    forward = Graph([b.image, b.target, *b.parameters, *states], [loss])
    needs_gradient = [False, False, *[True] * len(b.parameters), *[False] * len(states)]
    joint = joint_graph(forward, needs_gradient, [True])
    updates = [p - g * rate for p, g in zip(b.parameters, joint.outputs, strict=True)]
    news = [new for _, new in b.states]
    writes = {1 + k: 2 + k for k in range(len(updates) + len(news))}
    return Graph(joint.inputs, [loss, *updates, *news], writes)
