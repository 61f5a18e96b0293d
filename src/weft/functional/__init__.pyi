"""The functions of all operators; written by weft.ops.make_stubs."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from weft.base.device import Device
from weft.base.dtype import DType
from weft.arrays.tensor import Tensor

ArrayLike = Tensor | float | np.ndarray[Any, Any] | np.generic  # what Python's operators take
Operand = ArrayLike | list[Any]
from weft.functional.drawn import *
from weft.functional.losses import *


def abs(x: Operand, /) -> Tensor:
    """The magnitude of x."""

def acos(x: Operand, /) -> Tensor:
    """The angle in radians, from 0 to pi, whose cosine is x: NaN outside of -1..1."""

def acosh(x: Operand, /) -> Tensor:
    """The inverse of the hyperbolic cosine: NaN below 1."""

def adaptive_avg_pool1d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Averages over windows of a sequence, chosen so that the result has output_size."""

def adaptive_avg_pool2d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Averages over windows of an image, chosen so that the result has output_size."""

def adaptive_avg_pool3d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Averages over windows of a volume, chosen so that the result has output_size."""

def adaptive_max_pool1d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Maxima over windows of a sequence, chosen so that the result has output_size."""

def adaptive_max_pool1d_with_indices(x: Operand, /, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Maxima and their places over windows of a sequence, chosen so that the result has output_size."""

def adaptive_max_pool2d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Maxima over windows of an image, chosen so that the result has output_size."""

def adaptive_max_pool2d_with_indices(x: Operand, /, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Maxima and their places over windows of an image, chosen so that the result has output_size."""

def adaptive_max_pool3d(x: Operand, /, output_size: int | Sequence[int]) -> Tensor:
    """Maxima over windows of a volume, chosen so that the result has output_size."""

def adaptive_max_pool3d_with_indices(x: Operand, /, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Maxima and their places over windows of a volume, chosen so that the result has output_size."""

def add(a: Operand, b: Operand, /) -> Tensor:
    """a + b; for booleans their or."""

def affine_grid(theta: Operand, /, size: Sequence[int], align_corners: bool=False) -> Tensor:
    """The places that affine maps give to the elements of an image, for grid_sample."""

def all(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """Whether all are true along axes."""

def anchor_boxes(x: Operand, /, sizes: Sequence[float], ratios: Sequence[float]=(0.5, 1.0, 2.0), stride: float | Sequence[float]=1.0, offset: float=0.0) -> Tensor:
    """Boxes of several sizes and shapes around each element of a feature map, in elements of the image."""

def angle(x: Operand, /) -> Tensor:
    """The angles of the points in the plane of complex numbers, in radians, from -pi to pi."""

def any(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """Whether at least one is true along axes."""

def argmax(x: Operand, /, axis: int | None=None, *, keepdims: bool=False) -> Tensor:
    """The index of the greatest value along an axis; of equal ones the first, and of NaN the first."""

def argmin(x: Operand, /, axis: int | None=None, *, keepdims: bool=False) -> Tensor:
    """The index of the least value along an axis; of equal ones the first, and of NaN the first."""

def argsort(x: Operand, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> Tensor:
    """The indices that sort x along an axis, the least first; NaN last."""

def argwhere(x: Operand, /, size: int, fill_value: int=0) -> Tensor:
    """The indices of the elements that are not zero, in row-major order, as rows of a result of a given size."""

def asin(x: Operand, /) -> Tensor:
    """The angle in radians, from -pi/2 to pi/2, whose sine is x: NaN outside of -1..1."""

def asinh(x: Operand, /) -> Tensor:
    """The inverse of the hyperbolic sine."""

def atan(x: Operand, /) -> Tensor:
    """The angle in radians, from -pi/2 to pi/2, whose tangent is x."""

def atan2(a: Operand, b: Operand, /) -> Tensor:
    """The angle of the point (b, a) in radians, from -pi to pi."""

def atanh(x: Operand, /) -> Tensor:
    """The inverse of the hyperbolic tangent: infinities for -1 and 1, NaN outside."""

def avg_pool1d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, count_include_pad: bool=True, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The average of every window."""

def avg_pool2d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, count_include_pad: bool=True, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The average of every window."""

def avg_pool3d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, count_include_pad: bool=True, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The average of every window."""

def batch_norm(x: Operand, running_mean: Operand | None=None, running_var: Operand | None=None, weight: Operand | None=None, bias: Operand | None=None, training: bool=False, momentum: float=0.1, eps: float=1e-05, *, correction: Literal[1, 0]=1) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel, the sizes of axis 1."""

def bernoulli(p: Operand, /, *, dtype: DType | str | type[Any] | None=None) -> Tensor:
    """1 with probability p, else 0, each element for itself."""

def bilinear(x1: Operand, x2: Operand, weight: Operand, bias: Operand | None=None) -> Tensor:
    """y[..., o] = sum over i, j of x1[..., i] weight[o, i, j] x2[..., j], + bias[o]."""

def bilinear_sampler(x: Operand, grid: Operand, /) -> Tensor:
    """Images read between elements at the places of a grid, 0 beyond the image."""

def binary_cross_entropy(x: Operand, target: Operand, weight: Operand | None=None, reduction: str='mean') -> Tensor:
    """-(target log(x) + (1 - target) log(1 - x)), with logarithms of at least -100."""

def binary_cross_entropy_with_logits(x: Operand, target: Operand, weight: Operand | None=None, pos_weight: Operand | None=None, reduction: str='mean') -> Tensor:
    """binary_cross_entropy of sigmoid(x), finite for all finite x."""

def bincount(x: Operand, weights: Operand | None=None, *, length: int) -> Tensor:
    """How often each number 0 ... length - 1 occurs, or the sum of its weights."""

def bitwise_and(a: Operand, b: Operand, /) -> Tensor:
    """The bits that both a and b have: a & b."""

def bitwise_invert(x: Operand, /) -> Tensor:
    """All bits changed: ~x; for booleans their not."""

def bitwise_left_shift(a: Operand, b: Operand, /) -> Tensor:
    """a * 2**b by moving bits to the left: a << b."""

def bitwise_or(a: Operand, b: Operand, /) -> Tensor:
    """The bits that a or b has: a | b."""

def bitwise_right_shift(a: Operand, b: Operand, /) -> Tensor:
    """floor(a / 2**b) by moving bits to the right: a >> b."""

def bitwise_xor(a: Operand, b: Operand, /) -> Tensor:
    """The bits in which a and b differ: a ^ b."""

def block_diag(*x: Operand | Sequence[Operand]) -> Tensor:
    """Matrices as blocks along the diagonal of one, 0 elsewhere."""

def box_decode(x: Operand, anchors: Operand, /, *, limit: float | None=None, scales: Sequence[float]=(1.0, 1.0, 1.0, 1.0)) -> Tensor:
    """The boxes that differ so from anchors: the inverse of box_encode."""

def box_encode(x: Operand, anchors: Operand, /, *, scales: Sequence[float]=(1.0, 1.0, 1.0, 1.0)) -> Tensor:
    """Boxes as differences to anchors: centers over the anchor's size, and logarithms of sizes, times scales."""

def box_iou(a: Operand, b: Operand, /, kind: str='iou') -> Tensor:
    """The overlap of each box of a with each of b: area of the intersection over that of the union."""

def broadcast_arrays(*x: Operand | Sequence[Operand]) -> tuple[Tensor, ...]:
    """Views of arrays, repeated to the shape that all fit."""

def broadcast_to(x: Operand, /, shape: int | Sequence[int]) -> Tensor:
    """A view in a larger shape, whose new dimensions repeat the same elements; those cannot be written."""

def cast(x: Operand, /, dtype: DType | str | type[Any]) -> Tensor:
    """The elements as another type, converted as NumPy's astype does."""

def cbrt(x: Operand, /) -> Tensor:
    """The cube root of x, negative for negative numbers."""

def cdist(x1: Operand, x2: Operand, /, p: float=2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows of x1 and x2."""

def ceil(x: Operand, /) -> Tensor:
    """The least whole number that is at least x."""

def celu(x: Operand, /, alpha: float=1.0) -> Tensor:
    """x where it is positive, else alpha (exp(x / alpha) - 1)."""

def channel_shuffle(x: Operand, /, groups: int) -> Tensor:
    """The channels of several groups in turn: one of each group, then the next of each."""

def cholesky(x: Operand, /, *, upper: bool=False) -> Tensor:
    """The lower triangular L with L L^H = x, of positive definite Hermitian matrices."""

def cholesky_solve(b: Operand, factor: Operand, /, *, upper: bool=False) -> Tensor:
    """The x with a x = b, from the Cholesky factor of a."""

def chunk(x: Operand, /, chunks: int, axis: int=0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along an axis, the last one smaller if need be."""

def clip(x: Operand, min: Operand | None=None, max: Operand | None=None) -> Tensor:
    """x, but at least min and at most max: minimum(maximum(x, min), max)."""

def complex(re: Operand, im: Operand, /) -> Tensor:
    """The complex numbers of real and imaginary parts: re + 1j * im, where infinities and NaN stay in their part."""

def concat(*x: Operand | Sequence[Operand], axis: int | None=0) -> Tensor:
    """Arrays one after the other along an axis."""

def conj(x: Operand, /) -> Tensor:
    """The complex conjugates: imaginary parts with the other sign."""

def conv1d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution (in fact the cross-correlation) of sequences, in groups of channels."""

def conv2d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution (in fact the cross-correlation) of images, in groups of channels."""

def conv3d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution (in fact the cross-correlation) of volumes, in groups of channels."""

def conv_transpose1d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | Sequence[int]=0, output_padding: int | Sequence[int]=0, groups: int=1, dilation: int | Sequence[int]=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The transpose of conv1d: the gradient of its x, for upsampling sequences."""

def conv_transpose2d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | Sequence[int]=0, output_padding: int | Sequence[int]=0, groups: int=1, dilation: int | Sequence[int]=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The transpose of conv2d: the gradient of its x, for upsampling images."""

def conv_transpose3d(x: Operand, weight: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | Sequence[int]=0, output_padding: int | Sequence[int]=0, groups: int=1, dilation: int | Sequence[int]=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The transpose of conv3d: the gradient of its x, for upsampling volumes."""

def copysign(a: Operand, b: Operand, /) -> Tensor:
    """The magnitude of a with the sign of b."""

def corrcoef(x: Operand, /) -> Tensor:
    """The correlations of variables, which are the rows of x: covariances divided by both deviations."""

def correlation(x1: Operand, x2: Operand, /, *, kernel_size: int=1, max_displacement: int=1, stride: int=1, displacement_stride: int=1, padding: int=0, multiply: bool=True) -> Tensor:
    """How alike the patches of two images are, for each place and displacement: the mean of their products."""

def cos(x: Operand, /) -> Tensor:
    """The cosine of x radians: NaN for infinities."""

def cosh(x: Operand, /) -> Tensor:
    """The hyperbolic cosine of x."""

def cosine_embedding_loss(x1: Operand, x2: Operand, target: Operand, /, margin: float=0.0, reduction: str='mean') -> Tensor:
    """1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1."""

def cosine_similarity(x1: Operand, x2: Operand, /, axis: int=1, eps: float=1e-08) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis."""

def count_nonzero(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """How many are not 0 along axes."""

def cov(x: Operand, /, *, correction: float=1.0) -> Tensor:
    """The covariances of variables, which are the rows of x; columns are observations."""

def cross(x1: Operand, x2: Operand, /, *, axis: int=-1) -> Tensor:
    """The cross product of vectors of 3 elements along an axis."""

def cross_entropy(x: Operand, target: Operand, weight: Operand | None=None, ignore_index: int=-100, reduction: str='mean', label_smoothing: float=0.0) -> Tensor:
    """-weight[t] log(softmax(x)[t]): the loss of predicting class t by logits x; or -sum(weight t log(softmax(x)))."""

def ctc_loss(log_probs: Operand, targets: Operand, input_lengths: Operand, target_lengths: Operand, /, blank: int=0, reduction: str='mean', zero_infinity: bool=False) -> Tensor:
    """-log of the probability that a sequence reads as its labels: of all paths that give them when repeated classes"""

def cumulative_max(x: Operand, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
    """The greatest element of a row up to each of its elements; NaN stays."""

def cumulative_min(x: Operand, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
    """The least element of a row up to each of its elements; NaN stays."""

def cumulative_prod(x: Operand, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
    """The product of a row up to each of its elements, with it."""

def cumulative_sum(x: Operand, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
    """The sum of a row up to each of its elements, with it."""

def cumulative_trapezoid(y: Operand, x: Operand | None=None, dx: float=1.0, axis: int=-1) -> Tensor:
    """The integrals of samples along an axis up to each sample behind the first, by the trapezoidal rule."""

def cvt_color(x: Operand, /, mode: str) -> Tensor:
    """Images in other colours: "RGB2GRAY", "BGR2GRAY", "GRAY2RGB", "GRAY2BGR", "RGB2BGR", "BGR2RGB", "RGB2YUV", ..."""

def deformable_conv2d(x: Operand, offset: Operand, weight: Operand, bias: Operand | None=None, mask: Operand | None=None, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """conv2d whose kernel reads each of its elements beside its place, by an offset that is given for each result."""

def deformable_ps_roi_pool(x: Operand, boxes: Operand, images: Operand, offsets: Operand | None=None, *, output_size: Sequence[int], spatial_scale: float=1.0, group_size: int=1, points: int=1, offset_scale: float=0.1) -> Tensor:
    """Regions of images, each as output_size bins that are moved by learned offsets: the mean of points of a bin."""

def deg2rad(x: Operand, /) -> Tensor:
    """Degrees in radians: x pi / 180."""

def depth_to_space(x: Operand, /, block_size: int) -> Tensor:
    """Channels become places, as pixel_shuffle, but the channels are (b, b, c): the block's place counts first."""

def dequantize(q: Operand, scale: Operand, zero_point: Operand | None=None, axis: int | None=None) -> Tensor:
    """(q - zero_point) * scale."""

def det(x: Operand, /) -> Tensor:
    """The determinant of square matrices: by its formula for up to 3 rows, else from the LU factorization."""

def diag(x: Operand, /, offset: int=0) -> Tensor:
    """The matrix with a vector as its diagonal, or the diagonal of a matrix."""

def diag_embed(x: Operand, /, offset: int=0, axis1: int=-2, axis2: int=-1) -> Tensor:
    """Matrices with x's rows as a diagonal, 0 elsewhere."""

def diagonal(x: Operand, /, offset: int=0, axis1: int=0, axis2: int=1) -> Tensor:
    """A view of the elements at equal indices of two axes, as a new last dimension."""

def digamma(x: Operand, /) -> Tensor:
    """The derivative of lgamma: NaN for whole numbers below 0, infinite for 0 with the other sign."""

def divide(a: Operand, b: Operand, /) -> Tensor:
    """a / b as real or complex numbers."""

def dropout(x: Operand, /, p: float=0.5, training: bool=True) -> Tensor:
    """Zeros with probability p, else x / (1 - p), if training; else x."""

def eig(x: Operand, /) -> tuple[Tensor, Tensor]:
    """The eigenvalues of square matrices, in no order, and eigenvectors of length 1 as columns."""

def eigh(x: Operand, /) -> tuple[Tensor, Tensor]:
    """The eigenvalues of Hermitian matrices, the least first, and their eigenvectors, the columns of a unitary matrix."""

def eigvals(x: Operand, /) -> Tensor:
    """The eigenvalues of square matrices, in no order."""

def eigvalsh(x: Operand, /) -> Tensor:
    """The eigenvalues of Hermitian matrices, the least first."""

def einsum(equation: str, *x: Operand | Sequence[Operand]) -> Tensor:
    """Sums of products by Einstein's convention: einsum("ij,jk->ik", a, b) is the product of matrices."""

def elu(x: Operand, /, alpha: float=1.0) -> Tensor:
    """x where it is positive, else alpha (exp(x) - 1)."""

def embedding(indices: Operand, table: Operand, /, padding_idx: int | None=None, *, num_embeddings: int | None=None, embedding_dim: int | None=None) -> Tensor:
    """Rows of a table: y[..., :] = table[indices[...], :]."""

def embedding_bag(indices: Operand, table: Operand, offsets: Operand | None=None, weights: Operand | None=None, mode: str='mean') -> Tensor:
    """Sums, averages or maxima of a table's rows: of each row of indices, or of runs of them."""

def equal(a: Operand, b: Operand, /) -> Tensor:
    """Whether a = b."""

def erf(x: Operand, /) -> Tensor:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""

def erfc(x: Operand, /) -> Tensor:
    """1 - erf(x), exact to the last digits where that is small."""

def erfinv(x: Operand, /) -> Tensor:
    """The number whose error function is x: infinite for -1 and 1, NaN beyond."""

def exp(x: Operand, /) -> Tensor:
    """e to the power of x."""

def exp2(x: Operand, /) -> Tensor:
    """2 to the power of x."""

def expand_dims(x: Operand, /, axis: int | Sequence[int]=0) -> Tensor:
    """A view with new dimensions of size 1 at these indices of the result's."""

def expm(x: Operand, /) -> Tensor:
    """The exponential of square matrices, the sum of x^k / k!: Pade's approximation of x / 2^s, squared s times."""

def expm1(x: Operand, /) -> Tensor:
    """exp(x) - 1, exact to the last digits near 0."""

def fake_quantize(x: Operand, scale: Operand, zero_point: Operand | None=None, axis: int | None=None, dtype: DType | str | type[Any]='int8', *, estimator: Literal['straight_through', 'learned_step', 'threshold']='straight_through', gradient_factor: float=1.0, low: int | None=None, high: int | None=None) -> Tensor:
    """dequantize(quantize(x)) with a gradient, for training: x as it will be after quantization."""

def fft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The discrete Fourier transform along an axis: y[k] = sum over j of x[j] exp(-2 pi i j k / n)."""

def fft2(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=(-2, -1), *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The discrete Fourier transform along two axes, by default the last ones: fftn."""

def fftn(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=None, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The discrete Fourier transform along several axes."""

def fftshift(x: Operand, /, *, axes: int | Sequence[int] | None=None) -> Tensor:
    """The frequency 0 moved from the first place to the middle, along axes."""

def flatten(x: Operand, /, start_axis: int=0, end_axis: int=-1) -> Tensor:
    """x with the dimensions from start_axis to end_axis as one; a view where strides allow it."""

def flip(x: Operand, /, axis: int | Sequence[int] | None=None) -> Tensor:
    """A view with the elements in reverse order along axes."""

def floor(x: Operand, /) -> Tensor:
    """The greatest whole number that is at most x."""

def floor_divide(a: Operand, b: Operand, /) -> Tensor:
    """The greatest whole number that is at most a / b."""

def fmax(a: Operand, b: Operand, /) -> Tensor:
    """The larger of a and b; if one is NaN, the other."""

def fmin(a: Operand, b: Operand, /) -> Tensor:
    """The smaller of a and b; if one is NaN, the other."""

def fmod(a: Operand, b: Operand, /) -> Tensor:
    """a - b * trunc(a / b): what division leaves, with the sign of a."""

def fold(x: Operand, /, output_size: int | Sequence[int], kernel_size: int | Sequence[int], dilation: int | Sequence[int]=1, padding: int | Sequence[int]=0, stride: int | Sequence[int]=1) -> Tensor:
    """Windows given as columns put into an image, where elements that overlap are added (col2im)."""

def from_float8(q: Operand, /, format: Literal['e4m3', 'e5m2']='e4m3', dtype: DType | str | type[Any]='float32') -> Tensor:
    """What bytes of to_float8 stand for."""

def gamma(x: Operand, /) -> Tensor:
    """The gamma function, (x - 1)! of whole numbers: NaN for whole numbers below 0, infinite for 0 with its sign."""

def gaussian_nll_loss(x: Operand, target: Operand, var: Operand, /, full: bool=False, eps: float=1e-06, reduction: str='mean') -> Tensor:
    """(log(v) + (x - target)^2 / v) / 2 with v = max(var, eps): what a normal distribution lacks of the target."""

def gelu(x: Operand, /, approximate: str='none') -> Tensor:
    """x times the normal distribution's function: x P(X <= x); approximate="tanh" uses its formula by tanh."""

def glu(x: Operand, /, axis: int=-1) -> Tensor:
    """The first half of x along an axis times the sigmoid of its second half."""

def gradient_multiplier(x: Operand, /, factor: float) -> Tensor:
    """x, whose gradient is multiplied by a factor: -1 reverses it."""

def greater(a: Operand, b: Operand, /) -> Tensor:
    """Whether a > b."""

def greater_equal(a: Operand, b: Operand, /) -> Tensor:
    """Whether a >= b."""

def grid_generator(x: Operand, /, *, kind: Literal['affine', 'warp']='affine', size: Sequence[int] | None=None) -> Tensor:
    """Grids of places from -1 to 1, for bilinear_sampler."""

def grid_sample(x: Operand, grid: Operand, /, mode: str='bilinear', padding_mode: str='zeros', align_corners: bool=False) -> Tensor:
    """Images read at the places of a grid."""

def group_norm(x: Operand, num_groups: int, weight: Operand | None=None, bias: Operand | None=None, eps: float=1e-05) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of groups of a sample's channels."""

def grouped_matmul(a: Operand, b: Operand, ends: Operand, /) -> Tensor:
    """Products of matrices group by group, where group i has the indices from ends[i - 1] to ends[i] - 1 of one axis."""

def gru(x: Operand, h0: Operand, *parameters: Operand | Sequence[Operand], bidirectional: bool=False, hidden_size: int | None=None, num_layers: int | None=None) -> tuple[Tensor, Tensor]:
    """Layers of gated recurrent units: r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh) of their rows,"""

def hard_sigmoid(x: Operand, /) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1): a sigmoid of three straight pieces."""

def hard_swish(x: Operand, /) -> Tensor:
    """x min(max(x / 6 + 1/2, 0), 1): x times its hard_sigmoid."""

def hardshrink(x: Operand, /, lambd: float=0.5) -> Tensor:
    """x, but 0 within lambd of 0. NaN stays NaN."""

def hardtanh(x: Operand, /, min_val: float=-1.0, max_val: float=1.0) -> Tensor:
    """x, but at least min_val and at most max_val. NaN stays NaN; the gradient at both is 0."""

def heaviside(a: Operand, b: Operand, /) -> Tensor:
    """0 where a is negative, 1 where it is positive, b where it is 0; NaN stays."""

def hfft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The Fourier transform, n real numbers, of a signal with conjugate symmetry, given n // 2 + 1 numbers of it."""

def hinge_embedding_loss(x: Operand, target: Operand, /, margin: float=1.0, reduction: str='mean') -> Tensor:
    """x where target is 1, else max(0, margin - x): of distances x of pairs that are alike (1) or not (-1)."""

def hinge_loss(x: Operand, target: Operand, /, reduction: str='mean', norm: str='L1') -> Tensor:
    """max(0, 1 - target x) for targets 1 and -1, or its square: the loss of support vector machines."""

def histogram(x: Operand, /, bins: int, range: Sequence[float]) -> Tensor:
    """How many elements are in each of so many bins of equal width: [low, high) each, the last one with its end."""

def huber_loss(x: Operand, target: Operand, /, reduction: str='mean', delta: float=1.0) -> Tensor:
    """delta (|d| - delta / 2) where |d| > delta, else d^2 / 2, with d = x - target."""

def hypot(a: Operand, b: Operand, /) -> Tensor:
    """sqrt(a**2 + b**2), without overflow on the way."""

def ifft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of fft: y[j] = 1 / n times the sum over k of x[k] exp(2 pi i j k / n)."""

def ifft2(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=(-2, -1), *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of fft2: ifftn along two axes, by default the last ones."""

def ifftn(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=None, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of fftn."""

def ifftshift(x: Operand, /, *, axes: int | Sequence[int] | None=None) -> Tensor:
    """The frequency 0 moved from the middle to the first place, along axes: the inverse of fftshift."""

def ihfft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of hfft: n // 2 + 1 numbers of a signal with conjugate symmetry, from its real transform."""

def imag(x: Operand, /) -> Tensor:
    """The imaginary parts."""

def index_get(x: Operand, *indices: Operand | Sequence[Operand], axes: Sequence[int], position: int=0) -> Tensor:
    """Elements or slices at indices for several axes: what x[i, :, j] with arrays i, j means."""

def index_put(x: Operand, updates: Operand, *indices: Operand | Sequence[Operand], axes: Sequence[int], position: int=0, mode: str='set') -> Tensor:
    """x, but the elements that index_get would read are combined with updates, in row-major order of the indices."""

def instance_norm(x: Operand, weight: Operand | None=None, bias: Operand | None=None, eps: float=1e-05) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of each channel of each sample."""

def integer_conv1d(x: Operand, weight: Operand, /, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, narrow: bool=False, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution of sequences of bytes, added up in int32."""

def integer_conv2d(x: Operand, weight: Operand, /, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, narrow: bool=False, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution of images of bytes, added up in int32."""

def integer_conv3d(x: Operand, weight: Operand, /, stride: int | Sequence[int]=1, padding: int | str | Sequence[int] | Sequence[Sequence[int]]=0, dilation: int | Sequence[int]=1, groups: int=1, *, narrow: bool=False, out_channels: int | None=None, kernel_size: int | Sequence[int] | None=None) -> Tensor:
    """The convolution of volumes of bytes, added up in int32."""

def integer_linear(x: Operand, weight: Operand, /, *, narrow: bool=False) -> Tensor:
    """x W^T of bytes, added up in int32."""

def integer_matmul(a: Operand, b: Operand, /, *, narrow: bool=False) -> Tensor:
    """The product of matrices of bytes, added up in int32; matmul of int8 arrays is of int8 and wraps."""

def interp(x: Operand, xp: Operand, fp: Operand, /, *, left: float | None=None, right: float | None=None) -> Tensor:
    """The function that is linear between points, at places x."""

def interpolate(x: Operand, /, size: int | Sequence[int] | None=None, scale_factor: float | Sequence[float] | None=None, mode: str='nearest', align_corners: bool | None=None, *, antialias: bool=False) -> Tensor:
    """Images of other sizes, by the elements near each place or by averages."""

def inv(x: Operand, /) -> Tensor:
    """The inverse of square matrices. solve(x, b) is quicker and more accurate than inv(x) @ b."""

def irfft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of rfft: the n real numbers with these first n // 2 + 1 frequencies."""

def irfft2(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=(-2, -1), *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of rfft2: irfftn along two axes, by default the last ones."""

def irfftn(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=None, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The inverse of rfftn."""

def isclose(a: Operand, b: Operand, /, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False) -> Tensor:
    """Whether |a - b| <= atol + rtol * |b|."""

def isfinite(x: Operand, /) -> Tensor:
    """Whether x is neither infinite nor NaN."""

def isinf(x: Operand, /) -> Tensor:
    """Whether x is infinite."""

def isnan(x: Operand, /) -> Tensor:
    """Whether x is NaN."""

def istft(x: Operand, n_fft: int, hop_length: int | None=None, win_length: int | None=None, window: Operand | None=None, center: bool=True, normalized: bool=False, onesided: bool=True, length: int | None=None) -> Tensor:
    """The signals whose short-time Fourier transforms are nearest to x: the inverse of stft."""

def khatri_rao(*x: Operand | Sequence[Operand]) -> Tensor:
    """The products of Kronecker of matrices column by column: y[..., j] = kron of all x[:, j]."""

def kl_div(x: Operand, target: Operand, /, reduction: str='mean', log_target: bool=False) -> Tensor:
    """target (log(target) - x): what x, logarithms of probabilities, lacks of the probabilities target."""

def kl_sparsity(x: Operand, mean: Operand, /, *, target: float=0.1, penalty: float=0.001, momentum: float=0.9, training: bool=True) -> Tensor:
    """x, whose gradient gets that of a penalty on means over the batch that differ from a target."""

def kron(a: Operand, b: Operand, /) -> Tensor:
    """The Kronecker product: blocks of b, one for each element of a, times that element."""

def l1_loss(x: Operand, target: Operand, /, reduction: str='mean') -> Tensor:
    """|x - target|: the absolute error. The gradient at 0 is 0."""

def layer_norm(x: Operand, normalized_shape: int | Sequence[int], weight: Operand | None=None, bias: Operand | None=None, eps: float=1e-05) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of each row of the last dimensions."""

def leaky_relu(x: Operand, /, negative_slope: float=0.01) -> Tensor:
    """x where it is positive, else negative_slope times x."""

def lerp(a: Operand, b: Operand, weight: Operand, /) -> Tensor:
    """a + weight * (b - a): from a at weight 0 to b at weight 1, exact at both."""

def less(a: Operand, b: Operand, /) -> Tensor:
    """Whether a < b."""

def less_equal(a: Operand, b: Operand, /) -> Tensor:
    """Whether a <= b."""

def lgamma(x: Operand, /) -> Tensor:
    """log(|gamma(x)|): infinite for 0 and whole numbers below."""

def linear(x: Operand, weight: Operand, bias: Operand | None=None, *, out_features: int | None=None) -> Tensor:
    """x W^T + b: a layer whose outputs are linear in its inputs."""

def linear_cross_entropy(x: Operand, weight: Operand, target: Operand, bias: Operand | None=None, class_weight: Operand | None=None, ignore_index: int=-100, reduction: str='mean', label_smoothing: float=0.0, *, chunk_rows: int | None=None) -> Tensor:
    """cross_entropy(linear(x, weight, bias), target, class_weight), without the logits of all rows in memory."""

def linear_regression_output(x: Operand, label: Operand, /, *, scale: float=1.0) -> Tensor:
    """x; its gradient is that of half the squared difference to the label: (x - label) scale / outputs."""

def local_conv2d(x: Operand, weight: Operand, /, stride: int | Sequence[int]=1, padding: int | Sequence[int]=0, dilation: int | Sequence[int]=1) -> Tensor:
    """conv2d with a weight of its own for each place of the result."""

def local_response_norm(x: Operand, /, size: int, alpha: float=0.0001, beta: float=0.75, k: float=1.0) -> Tensor:
    """x / (k + alpha s / size)^beta, where s is the sum of the squares of `size` neighbouring channels."""

def log(x: Operand, /) -> Tensor:
    """The natural logarithm of x: -inf for 0, NaN for negative numbers."""

def log10(x: Operand, /) -> Tensor:
    """The logarithm of x to the base 10: -inf for 0, NaN for negative numbers."""

def log1p(x: Operand, /) -> Tensor:
    """log(1 + x), exact to the last digits near 0: -inf for -1, NaN below."""

def log2(x: Operand, /) -> Tensor:
    """The logarithm of x to the base 2: -inf for 0, NaN for negative numbers."""

def log_sigmoid(x: Operand, /) -> Tensor:
    """log(1 / (1 + exp(-x))), finite for all finite x."""

def log_softmax(x: Operand, /, axis: int=-1) -> Tensor:
    """x - log(sum(exp(x))) along one axis: the logarithm of softmax, exact where that would be 0."""

def logaddexp(a: Operand, b: Operand, /) -> Tensor:
    """log(exp(a) + exp(b)), finite wherever the answer is."""

def logcumsumexp(x: Operand, /, axis: int=-1) -> Tensor:
    """The logarithm of the sum of exp of a row's elements up to each: log(exp(x[0]) + ... + exp(x[i]))."""

def logical_and(a: Operand, b: Operand, /) -> Tensor:
    """Whether both are true."""

def logical_not(x: Operand, /) -> Tensor:
    """Whether x is false."""

def logical_or(a: Operand, b: Operand, /) -> Tensor:
    """Whether at least one is true."""

def logical_xor(a: Operand, b: Operand, /) -> Tensor:
    """Whether just one is true."""

def logistic_regression_output(x: Operand, label: Operand, /, *, scale: float=1.0) -> Tensor:
    """sigmoid(x); the gradient of x is that of the cross entropy to the label: (sigmoid(x) - label) scale / outputs."""

def logit(x: Operand, /, *, eps: float=0.0) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid: infinite at 0 and 1, NaN beyond."""

def logsumexp(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """log(sum(exp(x))) along axes; finite wherever the answer is."""

def lp_pool1d(x: Operand, /, norm_type: float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, ceil_mode: bool=False, *, padding: int | Sequence[int]=0, dilation: int | Sequence[int]=1) -> Tensor:
    """The norm of every window of a sequence: the sum of |x|^norm_type, to the power of 1 / norm_type."""

def lp_pool2d(x: Operand, /, norm_type: float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, ceil_mode: bool=False, *, padding: int | Sequence[int]=0, dilation: int | Sequence[int]=1) -> Tensor:
    """The norm of every window of an image: the sum of |x|^norm_type, to the power of 1 / norm_type."""

def lp_pool3d(x: Operand, /, norm_type: float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, ceil_mode: bool=False, *, padding: int | Sequence[int]=0, dilation: int | Sequence[int]=1) -> Tensor:
    """The norm of every window of a volume: the sum of |x|^norm_type, to the power of 1 / norm_type."""

def lstm(x: Operand, h0: Operand, c0: Operand, *parameters: Operand | Sequence[Operand], bidirectional: bool=False, hidden_size: int | None=None, num_layers: int | None=None) -> tuple[Tensor, Tensor, Tensor]:
    """Layers of long short-term memory: at every step i, f, g, o = x W_ih^T + b_ih + h W_hh^T + b_hh,"""

def lstsq(a: Operand, b: Operand, /, *, rtol: float | None=None) -> Tensor:
    """The least-squares solution of a x = b: of all x with the least |a x - b| that with the least |x|."""

def lu(x: Operand, /) -> tuple[Tensor, Tensor, Tensor]:
    """The LU decomposition x = p l u: a permutation matrix, a lower triangle with ones on its diagonal, an upper one."""

def lu_factor(x: Operand, /) -> tuple[Tensor, Tensor, Tensor]:
    """LU factorization with partial pivoting, L and U in one matrix: row k of L U is row permutation[k] of x."""

def mae_regression_output(x: Operand, label: Operand, /, *, scale: float=1.0) -> Tensor:
    """x; its gradient is that of the absolute difference to the label: sign(x - label) scale / outputs."""

def make_loss(x: Operand, /, *, normalization: Literal['null', 'batch', 'valid']='null', valid_threshold: float=0.0, scale: float=1.0) -> Tensor:
    """x, as a loss: its gradient is scale, whatever comes from above."""

def margin_ranking_loss(x1: Operand, x2: Operand, target: Operand, /, margin: float=0.0, reduction: str='mean') -> Tensor:
    """max(0, margin - target (x1 - x2)): target 1 where x1 should be greater than x2, -1 where it should be less."""

def masked_fill(x: Operand, mask: Operand, /, value: float) -> Tensor:
    """x with value where the mask is true."""

def masked_select(x: Operand, mask: Operand, /, size: int, fill_value: float=0.0) -> Tensor:
    """The elements of x where a mask is true, in row-major order, in a result of a given size."""

def matmul(a: Operand, b: Operand, /) -> Tensor:
    """The product of matrices: y[..., i, j] = sum over k of a[..., i, k] b[..., k, j]."""

def matrix_norm(x: Operand, /, *, keepdims: bool=False, ord: str | float='fro') -> Tensor:
    """The norm of matrices, over the last two axes."""

def matrix_power(x: Operand, /, n: int) -> Tensor:
    """The n-th power of square matrices, by squaring; of negative n that of the inverse; for 0 the identity."""

def matrix_rank(x: Operand, /, *, rtol: float | None=None) -> Tensor:
    """The number of singular values that count: greater than rtol times the greatest one."""

def matrix_trace(x: Operand, /, *, offset: int=0, dtype: DType | str | type[Any] | None=None) -> Tensor:
    """The sum of each matrix's diagonal."""

def matrix_transpose(x: Operand, /) -> Tensor:
    """A view with the last two dimensions exchanged."""

def max(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The greatest value along axes; NaN if there is one."""

def max_pool1d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The greatest element of every window; NaN if there is one. The gradient goes to the first of equal ones."""

def max_pool1d_with_indices(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> tuple[Tensor, Tensor]:
    """The greatest element of every window of a sequence, and its index in the flat sequence."""

def max_pool2d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The greatest element of every window; NaN if there is one. The gradient goes to the first of equal ones."""

def max_pool2d_with_indices(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> tuple[Tensor, Tensor]:
    """The greatest element of every window of an image, and its index in the flat image."""

def max_pool3d(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> Tensor:
    """The greatest element of every window; NaN if there is one. The gradient goes to the first of equal ones."""

def max_pool3d_with_indices(x: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, *, ceil_mode: bool=False, dilation: int | Sequence[int]=1) -> tuple[Tensor, Tensor]:
    """The greatest element of every window of a volume, and its index in the flat volume."""

def max_unpool1d(x: Operand, indices: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, output_size: Sequence[int] | None=None) -> Tensor:
    """Elements put back to where max_pool1d_with_indices found them, 0 elsewhere."""

def max_unpool2d(x: Operand, indices: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, output_size: Sequence[int] | None=None) -> Tensor:
    """Elements put back to where max_pool2d_with_indices found them, 0 elsewhere."""

def max_unpool3d(x: Operand, indices: Operand, /, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None=None, padding: int | Sequence[int]=0, output_size: Sequence[int] | None=None) -> Tensor:
    """Elements put back to where max_pool3d_with_indices found them, 0 elsewhere."""

def maximum(a: Operand, b: Operand, /) -> Tensor:
    """The larger of a and b; NaN if one is NaN."""

def mean(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The arithmetic mean along axes."""

def median(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The middle of a row's sorted elements, for an even number of them the mean of both."""

def meshgrid(*x: Operand | Sequence[Operand], indexing: str='xy') -> tuple[Tensor, ...]:
    """Views of rows, each along its own dimension of one grid."""

def min(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The least value along axes; NaN if there is one."""

def minimum(a: Operand, b: Operand, /) -> Tensor:
    """The smaller of a and b; NaN if one is NaN."""

def mish(x: Operand, /) -> Tensor:
    """x tanh(log(1 + exp(x)))."""

def moveaxis(x: Operand, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with some dimensions moved to other indices, the others in their order."""

def mse_loss(x: Operand, target: Operand, /, reduction: str='mean') -> Tensor:
    """(x - target)^2: the squared error."""

def multi_dot(*x: Operand | Sequence[Operand]) -> Tensor:
    """The product of several matrices in the order that takes the fewest multiplications."""

def multi_margin_loss(x: Operand, target: Operand, p: int=1, margin: float=1.0, weight: Operand | None=None, reduction: str='mean') -> Tensor:
    """The mean over classes i of max(0, margin - x[target] + x[i])^p, i unlike target."""

def multibox_detection(scores: Operand, offsets: Operand, anchors: Operand, /, *, clip: bool=True, threshold: float=0.01, background: int=0, nms_threshold: float=0.5, across_classes: bool=False, limit: int=-1, variances: Sequence[float]=(0.1, 0.1, 0.2, 0.2)) -> Tensor:
    """The objects that predictions for anchors mean: boxes, after non-maximum suppression."""

def multibox_prior(x: Operand, /, sizes: Sequence[float]=(1.0,), ratios: Sequence[float]=(1.0,), *, steps: Sequence[float] | None=None, offsets: Sequence[float]=(0.5, 0.5), clip: bool=False) -> Tensor:
    """Default boxes around each element of a feature map, as shares of the image."""

def multibox_target(anchors: Operand, labels: Operand, scores: Operand, /, *, overlap_threshold: float=0.5, ignore_label: float=-1.0, negative_ratio: float=-1.0, negative_threshold: float=0.5, least_negatives: int=0, variances: Sequence[float]=(0.1, 0.1, 0.2, 0.2)) -> tuple[Tensor, Tensor, Tensor]:
    """What anchors should learn of the objects of images: their classes, and the differences of boxes."""

def multilabel_margin_loss(x: Operand, target: Operand, /, reduction: str='mean') -> Tensor:
    """The sum over classes i, unlike all of the targets, and targets j of max(0, 1 - x[j] + x[i]), divided by c."""

def multilabel_soft_margin_loss(x: Operand, target: Operand, weight: Operand | None=None, reduction: str='mean') -> Tensor:
    """The mean over classes of binary_cross_entropy_with_logits(x, target)."""

def multiply(a: Operand, b: Operand, /) -> Tensor:
    """a * b; for booleans their and."""

def nan_to_num(x: Operand, /, *, nan: float=0.0, posinf: float | None=None, neginf: float | None=None) -> Tensor:
    """x with numbers in the place of NaN and infinities."""

def nanmax(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The greatest along axes of the elements that are not NaN; NaN where there is none."""

def nanmean(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The mean along axes of the elements that are not NaN; NaN where there is none."""

def nanmin(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The least along axes of the elements that are not NaN; NaN where there is none."""

def nanprod(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The product along axes, in which NaN counts as 1."""

def nansum(x: Operand, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
    """The sum along axes, in which NaN counts as 0."""

def negative(x: Operand, /) -> Tensor:
    """-x."""

def nextafter(a: Operand, b: Operand, /) -> Tensor:
    """The number next to a in the direction of b; b where both are equal, NaN where one is."""

def nll_loss(x: Operand, target: Operand, weight: Operand | None=None, ignore_index: int=-100, reduction: str='mean') -> Tensor:
    """-weight[t] x[t]: the loss of predicting class t by logarithms of probabilities x."""

def nms(boxes: Operand, scores: Operand, classes: Operand | None=None, *, threshold: float=0.5) -> Tensor:
    """Which boxes stay if those that overlap a better one by more than a threshold go (non-maximum suppression)."""

def normalize(x: Operand, /, p: float=2.0, axis: int | Sequence[int]=1, eps: float=1e-12) -> Tensor:
    """x / max(|x|, eps), with the p-norm along axes."""

def not_equal(a: Operand, b: Operand, /) -> Tensor:
    """Whether a and b differ."""

def one_hot(x: Operand, /, num_classes: int) -> Tensor:
    """1 at the index that x gives, in a new last dimension, 0 elsewhere."""

def outer(x1: Operand, x2: Operand, /) -> Tensor:
    """The products of all pairs: y[i, j] = x1[i] x2[j]."""

def pack_int4(q: Operand, /, group_size: int) -> Tensor:
    """Two integers of 4 bits in each byte: what quantized_linear reads."""

def packed_ranges(query_starts: Operand, key_starts: Operand | None=None, *, size: int) -> Tensor:
    """The keys that each of `size` packed queries sees: those of its own sequence."""

def pad(x: Operand, /, pad: Sequence[int], mode: str='constant', value: float=0.0) -> Tensor:
    """x with borders: pad[0] before and pad[1] after the last axis, pad[2] and pad[3] the one before, and so on."""

def pairwise_distance(x1: Operand, x2: Operand, /, p: float=2.0, eps: float=1e-06, keepdims: bool=False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""

def pdist(x: Operand, /, p: float=2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows: cdist(x, x) above its diagonal, row by row."""

def permute_dims(x: Operand, /, axes: Sequence[int]) -> Tensor:
    """A view with the dimensions in the order of axes."""

def pinv(x: Operand, /, *, rtol: float | None=None) -> Tensor:
    """The Moore-Penrose inverse of matrices: for each singular value that counts its reciprocal, else 0."""

def pixel_shuffle(x: Operand, /, upscale_factor: int) -> Tensor:
    """Channels become places: each r^2 channels (c, r, r) give blocks of r x r pixels of one channel."""

def pixel_unshuffle(x: Operand, /, downscale_factor: int) -> Tensor:
    """Places become channels: the inverse of pixel_shuffle."""

def poisson_nll_loss(x: Operand, target: Operand, /, log_input: bool=True, full: bool=False, eps: float=1e-08, reduction: str='mean') -> Tensor:
    """exp(x) - target x: what a Poisson distribution of mean exp(x) lacks of the counts target."""

def polar(magnitude: Operand, angle: Operand, /) -> Tensor:
    """The complex numbers of magnitudes and angles: magnitude * (cos(angle) + 1j * sin(angle))."""

def polygamma(x: Operand, /, n: int) -> Tensor:
    """The n-th derivative of digamma."""

def positive(x: Operand, /) -> Tensor:
    """+x: the same numbers."""

def pow(a: Operand, b: Operand, /) -> Tensor:
    """a to the power of b."""

def prelu(x: Operand, weight: Operand, /) -> Tensor:
    """x where it is positive, else weight times x; a learnt leaky_relu."""

def prod(x: Operand, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> Tensor:
    """The product along axes."""

def ps_roi_align(x: Operand, boxes: Operand, images: Operand, /, output_size: Sequence[int], spatial_scale: float=1.0, *, points: int=2, is_aligned: bool=True) -> Tensor:
    """roi_align where each bin has channels of its own (position-sensitive): bin (i, j) reads c of x's c p q channels."""

def ps_roi_pool(x: Operand, boxes: Operand, images: Operand, /, output_size: Sequence[int], spatial_scale: float=1.0) -> Tensor:
    """Regions of images, each as output_size bins with channels of its own: the mean of a bin's elements."""

def put_along_axis(x: Operand, indices: Operand, updates: Operand, /, axis: int=-1, mode: str='set') -> Tensor:
    """x, but y[..., indices[..., j, ...], ...] is combined with updates[..., j, ...], in the order of j."""

def qr(x: Operand, /, mode: str='reduced') -> tuple[Tensor, Tensor]:
    """The QR decomposition: x = q r with orthonormal columns of q and an upper triangular r."""

def quantile(x: Operand, /, q: float | Sequence[float], axis: int | Sequence[int] | None=None, *, keepdims: bool=False, interpolation: Literal['linear', 'lower', 'higher', 'nearest', 'midpoint']='linear') -> Tensor:
    """The numbers below which shares q of a row's elements are: 0 the least, 0.5 the median, 1 the greatest."""

def quantize(x: Operand, scale: Operand | None=None, zero_point: Operand | None=None, axis: int | None=None, dtype: DType | str | type[Any]='int8', *, low: int | None=None, high: int | None=None) -> Tensor:
    """saturate(round(x / scale) + zero_point): the nearest integers, halves to the even one."""

def quantized_linear(x: Operand, weight: Operand, scale: Operand, bias: Operand | None=None, *, format: Literal['integer', 'e4m3', 'e5m2']='integer') -> Tensor:
    """x W^T + bias with a weight of small integers and a step for each group: W = q * scale."""

def rad2deg(x: Operand, /) -> Tensor:
    """Radians in degrees: x 180 / pi."""

def real(x: Operand, /) -> Tensor:
    """The real parts."""

def reciprocal(x: Operand, /) -> Tensor:
    """1 / x."""

def region_restricted_conv(x: Operand, weight: Operand, input_regions: Operand, output_regions: Operand, bias: Operand | None=None, stride: int | Sequence[int]=1, padding: int | Sequence[int]=0, dilation: int | Sequence[int]=1) -> Tensor:
    """A depthwise conv2d in which a result sees the elements of its own region alone."""

def relu(x: Operand, /) -> Tensor:
    """max(x, 0). NaN stays NaN; the gradient at 0 is 0."""

def relu6(x: Operand, /) -> Tensor:
    """min(max(x, 0), 6). NaN stays NaN; the gradient at 0 and 6 is 0."""

def remainder(a: Operand, b: Operand, /) -> Tensor:
    """a - b * floor(a / b): what division leaves, with the sign of b."""

def remap(x: Operand, places: Operand, /, *, mode: str='bilinear', padding_mode: str='zeros') -> Tensor:
    """Images read between elements at given places."""

def repeat(x: Operand, /, repeats: int, axis: int | None=None) -> Tensor:
    """Every element several times, one after the other."""

def repeat_each(x: Operand, repeats: Operand, /, size: int, axis: int | None=None) -> Tensor:
    """Slices of x, each as often as a number of its own says, one after the other, in a result of a given size."""

def reshape(x: Operand, /, shape: int | Sequence[int], *, copy: bool | None=None) -> Tensor:
    """The same elements in another shape, in row-major order; one size may be -1."""

def rfft(x: Operand, /, n: int | None=None, axis: int=-1, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The first n // 2 + 1 numbers of the Fourier transform of real numbers; the others are their conjugates."""

def rfft2(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=(-2, -1), *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The Fourier transform of real numbers along two axes, by default the last ones: rfftn."""

def rfftn(x: Operand, /, s: Sequence[int] | None=None, axes: Sequence[int] | None=None, *, norm: Literal['backward', 'ortho', 'forward']='backward') -> Tensor:
    """The Fourier transform of real numbers along several axes; along the last one the first n // 2 + 1 numbers."""

def rms_norm(x: Operand, normalized_shape: int | Sequence[int], weight: Operand | None=None, eps: float | None=None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, with the mean of each row of the last dimensions."""

def rnn(x: Operand, h0: Operand, *parameters: Operand | Sequence[Operand], nonlinearity: str='tanh', bidirectional: bool=False, hidden_size: int | None=None, num_layers: int | None=None) -> tuple[Tensor, Tensor]:
    """Layers of plain recurrent units: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it."""

def roi_align(x: Operand, boxes: Operand, images: Operand, /, output_size: Sequence[int], spatial_scale: float=1.0, *, points: int=2, is_aligned: bool=True) -> Tensor:
    """Regions of images, each as output_size bins: the mean of points of a bin, read between elements."""

def roi_pool(x: Operand, boxes: Operand, images: Operand, /, output_size: Sequence[int], spatial_scale: float=1.0) -> Tensor:
    """Regions of images, each as output_size bins: the greatest element of each bin."""

def roll(x: Operand, /, shift: int | Sequence[int], axis: int | Sequence[int] | None=None) -> Tensor:
    """The elements moved along axes; what leaves at one end comes in at the other."""

def rot90(x: Operand, /, k: int=1, axes: Sequence[int]=(0, 1)) -> Tensor:
    """x turned k times by a right angle, from the first towards the second of two axes: a view."""

def rotary_embedding(x: Operand, positions: Operand | None=None, frequencies: Operand | None=None, *, base: float=10000.0, layout: str='halves', features: int | None=None, offset: int=0) -> Tensor:
    """Pairs of features, each rotated by an angle that grows with the position: position * base^(-2 i / d) for pair i."""

def round(x: Operand, /) -> Tensor:
    """The whole number nearest to x; of two equally near ones the even one."""

def rsqrt(x: Operand, /) -> Tensor:
    """1 / sqrt(x): inf for 0, NaN for negative numbers."""

def scaled_dot_product_attention(q: Operand, k: Operand, v: Operand, mask: Operand | None=None, ranges: Operand | None=None, slopes: Operand | None=None, key: Operand | None=None, is_causal: bool=False, scale: float | None=None, *, window: Sequence[int] | None=None, offset: int=0, soft_cap: float | None=None, dropout: float=0.0) -> Tensor:
    """softmax(scale q k^T + mask) v, without the matrix of scores on processors."""

def sdml_loss(x1: Operand, x2: Operand, /, smoothing: float=0.3, reduction: str='mean') -> Tensor:
    """How little each row of x1 picks its own row of x2 among all: smoothed deep metric learning."""

def searchsorted(x1: Operand, x2: Operand, sorter: Operand | None=None, *, side: str='left') -> Tensor:
    """Where values would be inserted into a sorted array so that it stays sorted."""

def segment_max(x: Operand, segments: Operand, /, length: int) -> Tensor:
    """y[k] = the greatest of the rows x[i] with segments[i] == k, element by element."""

def segment_mean(x: Operand, segments: Operand, /, length: int) -> Tensor:
    """y[k] = the mean of the rows x[i] with segments[i] == k, 0 where there are none."""

def segment_min(x: Operand, segments: Operand, /, length: int) -> Tensor:
    """y[k] = the least of the rows x[i] with segments[i] == k, element by element."""

def segment_softmax(x: Operand, segments: Operand, /, length: int) -> Tensor:
    """y[i] = exp(x[i]) / the sum of exp(x[j]) over all j of i's segment."""

def segment_sum(x: Operand, segments: Operand, /, length: int) -> Tensor:
    """y[k] = the sum of the rows x[i] with segments[i] == k."""

def selu(x: Operand, /) -> Tensor:
    """1.0507 x where it is positive, else 1.0507 times 1.67326 (exp(x) - 1)."""

def sequence_last(x: Operand, lengths: Operand, /, axis: int=0) -> Tensor:
    """The last element of each sequence: x[lengths[i] - 1, i, ...]."""

def sequence_mask(x: Operand, lengths: Operand, /, value: float=0.0, axis: int=0) -> Tensor:
    """x with value beyond the end of each sequence."""

def sequence_reverse(x: Operand, lengths: Operand, /, axis: int=0) -> Tensor:
    """Each sequence backwards; what is beyond its end stays."""

def sigmoid(x: Operand, /) -> Tensor:
    """1 / (1 + exp(-x)), exact to the last digits on both sides."""

def sign(x: Operand, /) -> Tensor:
    """-1, 0 or 1 as x is negative, zero or positive; NaN for NaN; of a complex number x / |x|, or 0."""

def signbit(x: Operand, /) -> Tensor:
    """Whether x has a minus sign, as -0.0 has and as NaN may have."""

def silu(x: Operand, /) -> Tensor:
    """x sigmoid(x), also called swish."""

def sin(x: Operand, /) -> Tensor:
    """The sine of x radians: NaN for infinities."""

def sinc(x: Operand, /) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0, where it has derivatives of every order."""

def sinh(x: Operand, /) -> Tensor:
    """The hyperbolic sine of x."""

def slice(x: Operand, /, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None=None, axes: Sequence[int] | None=None) -> Tensor:
    """A view of the elements from starts to before stops, every steps-th, along axes, as Python's slices take them."""

def sliding_window(x: Operand, /, kernel_size: int | Sequence[int], dilation: int | Sequence[int]=1, padding: int | Sequence[int]=0, stride: int | Sequence[int]=1) -> Tensor:
    """The windows of an image, each as an image of its own."""

def sliding_window_transpose(x: Operand, /, output_size: Sequence[int], kernel_size: int | Sequence[int], dilation: int | Sequence[int]=1, padding: int | Sequence[int]=0, stride: int | Sequence[int]=1) -> Tensor:
    """Windows put into an image, where elements that overlap are added: the adjoint of sliding_window."""

def slogdet(x: Operand, /) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its absolute value, which does not overflow."""

def smooth_l1_loss(x: Operand, target: Operand, /, reduction: str='mean', beta: float=1.0) -> Tensor:
    """|d| - beta / 2 where |d| >= beta, else d^2 / (2 beta), with d = x - target."""

def soft_margin_loss(x: Operand, target: Operand, /, reduction: str='mean') -> Tensor:
    """log(1 + exp(-target x)): the logistic loss of targets 1 and -1."""

def soft_nms(boxes: Operand, scores: Operand, classes: Operand | None=None, *, threshold: float=0.5, kind: Literal['linear', 'gaussian']='linear', sigma: float=0.5, least: float=0.001) -> Tensor:
    """Scores of boxes, lowered where boxes overlap better ones: non-maximum suppression without a hard decision."""

def softmax(x: Operand, /, axis: int=-1) -> Tensor:
    """exp(x) / sum(exp(x)) along one axis, shifted so that it never overflows."""

def softmax_output(x: Operand, label: Operand, /, *, ignore_label: float | None=None, normalization: Literal['null', 'batch', 'valid']='null', smoothing: float=0.0, scale: float=1.0) -> Tensor:
    """softmax(x) along axis 1; the gradient of x is that of the cross entropy to the label: softmax(x) - onehot(label)."""

def softmin(x: Operand, /, axis: int=-1) -> Tensor:
    """softmax(-x) along one axis."""

def softplus(x: Operand, /, beta: float=1.0, threshold: float=20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""

def softshrink(x: Operand, /, lambd: float=0.5) -> Tensor:
    """x brought nearer to 0 by lambd, and 0 within lambd of it. NaN stays NaN."""

def softsign(x: Operand, /) -> Tensor:
    """x / (1 + |x|)."""

def solve(a: Operand, b: Operand, /) -> Tensor:
    """The x with a x = b, for square matrices a, by elimination with partial pivoting."""

def solve_triangular(a: Operand, b: Operand, /, *, upper: bool=False, unit: bool=False) -> Tensor:
    """The x with a x = b, for triangular matrices a: the other triangle is not read."""

def sort(x: Operand, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> Tensor:
    """x sorted along an axis, the least first; NaN last."""

def space_to_depth(x: Operand, /, block_size: int) -> Tensor:
    """Places become channels (b, b, c): the inverse of depth_to_space."""

def spatial_transformer(x: Operand, theta: Operand, /, size: Sequence[int]) -> Tensor:
    """Images mapped by affine maps that a network gives: bilinear_sampler at the places of grid_generator."""

def split(x: Operand, /, sizes: int | Sequence[int], axis: int=0) -> tuple[Tensor, ...]:
    """Views of sizes along an axis, one after the other."""

def sqrt(x: Operand, /) -> Tensor:
    """The square root of x: NaN for negative numbers."""

def square(x: Operand, /) -> Tensor:
    """x * x."""

def squeeze(x: Operand, /, axis: int | Sequence[int]) -> Tensor:
    """A view without these dimensions of size 1."""

def stack(*x: Operand | Sequence[Operand], axis: int=0) -> Tensor:
    """Arrays side by side along a new axis."""

def std(x: Operand, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> Tensor:
    """The standard deviation along axes: the square root of the variance."""

def stft(x: Operand, n_fft: int, hop_length: int | None=None, win_length: int | None=None, window: Operand | None=None, center: bool=True, pad_mode: str='reflect', normalized: bool=False, onesided: bool=True) -> Tensor:
    """The Fourier transforms of the frames of signals, each multiplied by a window (short-time Fourier transform)."""

def subtract(a: Operand, b: Operand, /) -> Tensor:
    """a - b."""

def sum(x: Operand, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> Tensor:
    """The sum along axes."""

def svd(x: Operand, /, *, full_matrices: bool=True) -> tuple[Tensor, Tensor, Tensor]:
    """The singular value decomposition x = u diag(s) vh, with the greatest values first."""

def svdvals(x: Operand, /) -> Tensor:
    """The singular values of matrices, the greatest first."""

def svm_output(x: Operand, label: Operand, /, *, margin: float=1.0, linear: bool=False, scale: float=1.0) -> Tensor:
    """x; its gradient is that of a hinge loss of one class against the rest."""

def swapaxes(x: Operand, /, axis1: int, axis2: int) -> Tensor:
    """A view with two dimensions exchanged."""

def take(x: Operand, indices: Operand, /, axis: int | None=None) -> Tensor:
    """The slices of x at these indices along an axis."""

def take_along_axis(x: Operand, indices: Operand, /, axis: int=-1) -> Tensor:
    """y[..., j, ...] = x[..., indices[..., j, ...], ...]: elements chosen along an axis, by an index for each."""

def tan(x: Operand, /) -> Tensor:
    """The tangent of x radians: NaN for infinities."""

def tanh(x: Operand, /) -> Tensor:
    """The hyperbolic tangent of x."""

def tanhshrink(x: Operand, /) -> Tensor:
    """x - tanh(x)."""

def tensordot(x1: Operand, x2: Operand, /, *, axes: int | Sequence[Sequence[int]]=2) -> Tensor:
    """The sum of products over several axes of both: those of a that are left, then those of b that are left."""

def threshold(x: Operand, /, threshold: float, value: float) -> Tensor:
    """x where it is more than threshold, else value."""

def tile(x: Operand, /, repetitions: Sequence[int]) -> Tensor:
    """x repeated as a whole along each dimension."""

def to_device(x: Operand, /, device: Device | str) -> Tensor:
    """x on a device: x itself if it is there, else a copy, made on the device's copy queue."""

def to_float8(x: Operand, /, format: Literal['e4m3', 'e5m2']='e4m3', *, saturate: bool=True) -> Tensor:
    """The nearest numbers of 8 bits, as bytes; halves to the even one."""

def topk(x: Operand, /, k: int, axis: int=-1, *, largest: bool=True, sorted: bool=True) -> tuple[Tensor, Tensor]:
    """The k greatest elements along an axis, the greatest first, and their indices."""

def trapezoid(y: Operand, x: Operand | None=None, dx: float=1.0, axis: int=-1) -> Tensor:
    """The integral of samples along an axis by the trapezoidal rule."""

def tril(x: Operand, /, k: int=0) -> Tensor:
    """The elements on and below the k-th diagonal of the last two dimensions, 0 above it."""

def triplet_margin_loss(anchor: Operand, positive: Operand, negative: Operand, /, margin: float=1.0, p: float=2.0, eps: float=1e-06, swap: bool=False, reduction: str='mean') -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin), with pairwise_distance's norms."""

def triu(x: Operand, /, k: int=0) -> Tensor:
    """The elements on and above the k-th diagonal of the last two dimensions, 0 below it."""

def trunc(x: Operand, /) -> Tensor:
    """The whole number nearest to x that is not farther from 0."""

def unfold(x: Operand, /, kernel_size: int | Sequence[int], dilation: int | Sequence[int]=1, padding: int | Sequence[int]=0, stride: int | Sequence[int]=1) -> Tensor:
    """The elements of every window of an image as a column, windows in row-major order (im2col)."""

def unique_all(x: Operand, /, size: int, fill_value: float | None=None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The distinct elements in ascending order, with indices, inverse indices and counts, in results of a given size."""

def unstack(x: Operand, /, axis: int=0) -> tuple[Tensor, ...]:
    """The arrays along an axis, without that axis, as views."""

def var(x: Operand, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> Tensor:
    """The variance along axes: the sum of (x - mean)^2, divided by their number less correction."""

def vecdot(x1: Operand, x2: Operand, /, *, axis: int=-1) -> Tensor:
    """The dot products of vectors along an axis, of x1's complex conjugate with x2."""

def vector_norm(x: Operand, /, axis: int | Sequence[int] | None=None, keepdims: bool=False, ord: float=2) -> Tensor:
    """The ord-norm along axes: the sum of |x|^ord, to the power of 1 / ord."""

def view_as_complex(x: Operand, /) -> Tensor:
    """The complex numbers whose parts lie along the last axis: a copy."""

def view_as_real(x: Operand, /) -> Tensor:
    """The parts of complex numbers along a new last axis of size 2: a copy."""

def warp_affine(x: Operand, matrix: Operand, /, size: Sequence[int], *, mode: str='bilinear', padding_mode: str='zeros') -> Tensor:
    """Images mapped by matrices: element (x, y) of the result is read at matrix (x, y, 1), in elements of the image."""

def warp_perspective(x: Operand, matrix: Operand, /, size: Sequence[int], *, mode: str='bilinear', padding_mode: str='zeros') -> Tensor:
    """Images mapped by projective matrices, read at the places that these give."""

def where(condition: Operand, x1: Operand, x2: Operand, /) -> Tensor:
    """x1 where the condition holds, else x2."""

def xlogy(a: Operand, b: Operand, /) -> Tensor:
    """a log(b), 0 where a is 0 and b is not NaN."""
