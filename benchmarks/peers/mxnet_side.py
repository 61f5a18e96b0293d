"""MXNet's side: Gluon, hybridized with static memory; for inference also fused by its oneDNN backend, amp for bf16."""

import mxnet as mx
import numpy as np
from _protocol import Cases, Run, serve
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

cases = Cases()
STATIC = {"static_alloc": True, "static_shape": True}


def integers(limit: int, *shape: int):
    return nd.array(np.random.randint(0, limit, shape))


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list:
    conv = nn.Conv2D(outputs, kernel, stride, kernel // 2, use_bias=False, in_channels=inputs)
    return [conv, nn.BatchNorm(in_channels=outputs)]


def sequence(*layers) -> nn.HybridSequential:
    result = nn.HybridSequential()
    result.add(*layers)
    return result


class Bottleneck(gluon.HybridBlock):
    def __init__(self, inputs: int, middle: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * middle
        with self.name_scope():
            self.path = sequence(
                *conv_norm(inputs, middle, 1),
                nn.Activation("relu"),
                *conv_norm(middle, middle, 3, stride),
                nn.Activation("relu"),
                *conv_norm(middle, outputs, 1),
            )
            self.shortcut = sequence(*conv_norm(inputs, outputs, 1, stride)) if inputs != outputs else None

    def hybrid_forward(self, F, x):
        shortcut = self.shortcut(x) if self.shortcut else x
        return F.Activation(self.path(x) + shortcut, act_type="relu")


def resnet50() -> nn.HybridSequential:
    net = sequence(*conv_norm(3, 64, 7, 2), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for k in range(count):
            net.add(Bottleneck(channels, middle, 2 if stage and not k else 1))
            channels = 4 * middle
    net.add(nn.GlobalAvgPool2D(), nn.Dense(1000, in_units=channels))
    net.initialize(mx.init.Xavier())
    return net


class LanguageModel(gluon.HybridBlock):
    def __init__(self, vocabulary: int = 10000, width: int = 650) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, width)
            self.recurrent = gluon.rnn.LSTM(width, 2, layout="TNC", input_size=width)
            self.head = nn.Dense(vocabulary, flatten=False, in_units=width)

    def hybrid_forward(self, F, tokens):
        return self.head(self.recurrent(self.embedding(tokens)))


def training(net, x, labels, rule: str, **options):
    """One step, not waited for; gives the losses of the batch."""
    net.hybridize(**STATIC)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(**STATIC)
    trainer = gluon.Trainer(net.collect_params(), rule, options)
    labels = labels.reshape((-1,))

    def step():
        with autograd.record():
            logits = net(x)
            loss = loss_of(logits.reshape((-1, logits.shape[-1])), labels)
        loss.backward()
        trainer.step(labels.size)
        return loss

    return step


def ending(step) -> Run:
    def run() -> float:
        loss = step()
        nd.waitall()
        return float(loss.mean().asscalar())

    return run


for batch in (1, 16):

    @cases.add(f"resnet50-infer-b{batch}", "hybrid", "hybrid fused", precisions=("f32",))
    @cases.add(f"resnet50-infer-b{batch}", "hybrid amp", precisions=("bf16",))
    def resnet50_infer(variant: str, precision: str, batch: int = batch) -> Run:
        net, x = resnet50(), nd.random.normal(shape=(batch, 3, 224, 224))
        if variant == "hybrid amp":
            from mxnet.contrib import amp

            net.hybridize()
            net(x).wait_to_read()
            net = amp.convert_hybrid_block(net, target_dtype="bfloat16", ctx=mx.cpu())
        if variant == "hybrid fused":
            net.optimize_for(x, backend="MKLDNN", **STATIC)
        else:
            net.hybridize(**STATIC)
        return lambda: net(x).wait_to_read()


@cases.add("resnet50-train", "hybrid", precisions=("f32",))
def resnet50_train(variant: str, precision: str) -> Run:
    x = nd.random.normal(shape=(16, 3, 224, 224))
    return ending(training(resnet50(), x, integers(1000, 16), "sgd", learning_rate=0.01, momentum=0.9))


@cases.add("lstm-train", "hybrid", precisions=("f32",))
def lstm_train(variant: str, precision: str) -> Run:
    net = LanguageModel()
    net.initialize(mx.init.Xavier())
    return ending(training(net, integers(10000, 35, 20), integers(10000, 35, 20), "sgd", learning_rate=0.1))


@cases.add("mlp-train", "hybrid", precisions=("f32",))
def mlp_train(variant: str, precision: str) -> Run:
    sizes = ((784, 256, "relu"), (256, 128, "relu"), (128, 10, None))
    net = sequence(*(nn.Dense(m, activation, in_units=n) for n, m, activation in sizes))
    net.initialize(mx.init.Xavier())
    step = training(net, nd.random.normal(shape=(32, 784)), integers(10, 32), "adam", learning_rate=1e-3)

    def run() -> None:
        for _ in range(100):
            step()
        nd.waitall()

    return run


if __name__ == "__main__":
    serve("MXNet", mx.__version__, cases)
