"""Networks that draw images: a variational autoencoder, and a generator that is trained against a critic."""

from __future__ import annotations

from weft import functional as F
from weft import random
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import grad
from weft.module import (
    BatchNorm2d,
    Conv2d,
    ConvTranspose2d,
    InstanceNorm2d,
    LeakyReLU,
    Linear,
    Module,
    ReLU,
    Sequential,
    Tanh,
    init,
)

__all__ = ["VAE", "Critic", "Generator", "gradient_penalty"]


class VAE(Module):
    """A variational autoencoder of linear layers: x becomes a normal distribution of codes, and a code becomes x again.

    forward(x): x float[n, inputs], of 0 ... 1 -> (logits of x, mean, logarithm of the variance); the code is drawn by
    wf.random, in evaluation it is the mean. loss(x) is the negative bound of the likelihood for each sample.
    Source: Kingma, Welling 2013, Auto-encoding variational Bayes.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.VAE(inputs=12, hidden=8, codes=2)
    >>> logits, mean, log_variance = net(wf.zeros((5, 12)))
    >>> logits.shape, mean.shape, net.loss(wf.zeros((5, 12))).shape
    ((5, 12), (5, 2), ())
    """

    repr_attributes = ("inputs", "hidden", "codes")

    def __init__(self, inputs: int = 784, hidden: int = 400, codes: int = 20) -> None:
        self.inputs, self.hidden, self.codes = inputs, hidden, codes
        self.encoder = Sequential(Linear(inputs, hidden), ReLU())
        self.mean, self.log_variance = Linear(hidden, codes), Linear(hidden, codes)
        self.decoder = Sequential(Linear(codes, hidden), ReLU(), Linear(hidden, inputs))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of x's codes, float[n, codes] each."""
        h = self.encoder(x)
        return self.mean(h), self.log_variance(h)

    def decode(self, code: Tensor) -> Tensor:
        """Logits float[n, inputs] of codes."""
        return self.decoder(code)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        code = mean
        if self.training:
            noise = random.normal(0.0, 1.0, mean.shape, "float32", mean.device).astype(mean.dtype)
            code = mean + noise * F.exp(log_variance * 0.5)
        return self.decode(code), mean, log_variance

    def loss(self, x: Tensor) -> Tensor:
        """Cross-entropy of x and its logits and the divergence of codes from normal(0, 1), summed; mean over n."""
        logits, mean, log_variance = self(x)
        likelihood = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = 0.5 * F.sum(mean * mean + F.exp(log_variance) - 1.0 - log_variance)
        return (likelihood + divergence) / x.shape[0]


class Generator(Module):
    """Images of normal numbers: transposed convolutions that double the image from 4 x 4 on, normalized, and tanh.

    forward(z): z float[n, codes] -> images float[n, channels, size, size] within -1 ... 1. size: a power of two from 8
    on. width: channels before the last layer. Raises ValueError for another size.
    Source: Radford, Metz, Chintala 2015, Unsupervised representation learning with deep convolutional generative
    adversarial networks.

    >>> import weft as wf
    >>> from weft import models
    >>> models.Generator(codes=4, width=4, size=16)(wf.zeros((2, 4))).shape
    (2, 3, 16, 16)
    """

    repr_attributes = ("codes", "size")

    def __init__(self, codes: int = 100, width: int = 64, channels: int = 3, size: int = 64) -> None:
        self.codes, self.size = codes, size
        wide = width << (doublings("Generator", size) - 1)
        layers: list[Module] = [ConvTranspose2d(codes, wide, 4, bias=False), BatchNorm2d(wide), ReLU()]
        while wide > width:
            layers += [ConvTranspose2d(wide, wide // 2, 4, 2, 1, bias=False), BatchNorm2d(wide // 2), ReLU()]
            wide //= 2
        self.layers = Sequential(*layers, ConvTranspose2d(wide, channels, 4, 2, 1), Tanh())
        self.apply(_begin)

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z[:, :, None, None])


class Critic(Module):
    """A number for each image, large for real ones: convolutions that halve the image down to 4 x 4, without a bound.

    forward(x): images float[n, channels, size, size] -> float[n]. Each image is normalized by itself, since
    gradient_penalty needs the gradients of single images.
    Source: Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville 2017, Improved training of Wasserstein GANs.

    >>> import weft as wf
    >>> from weft import models
    >>> models.Critic(width=4, size=16)(wf.zeros((2, 3, 16, 16))).shape
    (2,)
    """

    repr_attributes = ("size",)

    def __init__(self, width: int = 64, channels: int = 3, size: int = 64) -> None:
        self.size = size
        layers: list[Module] = [Conv2d(channels, width, 4, 2, 1), LeakyReLU(0.2)]
        for _ in range(doublings("Critic", size) - 1):
            layers += [
                Conv2d(width, 2 * width, 4, 2, 1),
                InstanceNorm2d(2 * width, affine=True),
                LeakyReLU(0.2),
            ]
            width *= 2
        self.layers = Sequential(*layers, Conv2d(width, 1, 4))
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return F.reshape(self.layers(x), (-1,))


def doublings(owner: str, size: int) -> int:
    """How often 4 is doubled to be this size."""
    count = size.bit_length() - 3
    if size < 8 or 4 << count != size:
        raise ValueError(f"{owner}: size must be a power of two from 8 on, got {size}")
    return count


def gradient_penalty(critic: Module, real: Tensor, drawn: Tensor) -> Tensor:
    """The mean of (|gradient of the critic| - 1)^2 at images between real and drawn ones, each at a random share.

    Added, times 10, to the critic's loss mean(critic(drawn)) - mean(critic(real)) it keeps the critic's slopes near 1.
    real, drawn: float[n, ...] of one shape. The shares are drawn by wf.random.
    Source: Gulrajani et al. 2017, Improved training of Wasserstein GANs.

    >>> import weft as wf
    >>> import weft.module as M
    >>> critic = M.Linear(4, 1, bias=False)
    >>> M.init.constant_(critic.weight, 1.0)
    >>> gradient_penalty(critic, wf.zeros((3, 4)), wf.ones((3, 4))).item()
    1.0
    """
    share = random.uniform(0.0, 1.0, (real.shape[0], *(1,) * (real.ndim - 1)), "float32", real.device)
    between = real + share.astype(real.dtype) * (drawn - real)
    slope = grad(lambda x: F.sum(critic(x)))(between)
    norm = F.sqrt(F.sum(F.reshape(slope * slope, (real.shape[0], -1)), axis=1))
    return F.mean((norm - 1.0) ** 2)


def _begin(module: Module) -> None:
    if isinstance(module, Conv2d | ConvTranspose2d):
        init.normal_(module.weight, std=0.02)
