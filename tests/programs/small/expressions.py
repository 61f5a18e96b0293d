"""Functions of functions, which can be symbols too."""

import weft as wf
import weft.functional as F

from ..case import expression, labels, matrix, normal, positive, vector


@expression(lambda n: (normal(2, n),))
def chain(x):
    return F.exp(F.tanh(x * 2 + 1) - 0.5) * x


@expression(lambda n: (normal(n, 4), normal(3, 4), normal(3)))
def dense_layer(x, w, b):
    return F.relu(F.linear(x, w, b))


@expression(lambda n: (normal(n, 4), normal(8, 4), normal(8), normal(3, 8), normal(3), labels(n, 3)))
def perceptron(x, w1, b1, w2, b2, y):
    return F.cross_entropy(F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2), y)


@expression(lambda n: (normal(2, 3, n + 5, 8), normal(4, 3, 3, 3), normal(4)))
def convolution_and_pooling(x, w, b):
    y = F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2)
    return F.mean(y, axis=(2, 3))


@expression(lambda n: (normal(n, 6), positive(6), normal(6)))
def normalized_rows(x, w, b):
    return F.layer_norm(x, (6,), w, b)


@expression(lambda n: (normal(2, 2, n, 8),))
def causal_attention(q):
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


@expression(lambda n: (normal(n, 4),))
def several_reductions(x):
    return F.sum(x), F.mean(x, axis=0), F.max(x, axis=1), F.sum(x * x, axis=1, keepdims=True)


@expression(vector)
def choice(x):
    return F.where(x > 0, x, x * 0.1)


@expression(lambda n: (normal(n, 1), normal(1, 4), normal(4)))
def broadcasting(a, b, c):
    return a * b + c - F.minimum(a, c)


@expression(matrix)
def split_and_joined(x):
    a, b = F.split(x, (2, 2), axis=1)
    return F.concat([b, a * 2, b], axis=1)


@expression(vector)
def several_types(x):
    return (
        F.cast(x * 3, dtype="int32") // 2,
        F.cast(x, dtype="bfloat16") * 2,
        x > 0,
        F.cast(x, dtype="float64"),
    )


@expression(lambda n: (normal(n, 4), normal(n, 4)))
def comparisons(x, y):
    return F.any(x > y, axis=1), F.all(F.logical_or(x > 0, y <= 0)), F.equal(x, x)


@expression(lambda n: (normal(3, n, 4), normal(4, 5)))
def product_of_matrices(x, w):
    return F.matmul(x, w), F.matmul(F.matrix_transpose(x), x)


@expression(lambda n: (labels(n, 10), normal(10, 4)))
def lookup(index, table):
    return F.sum(F.embedding(index, table), axis=0)


@expression(lambda n: (normal(6), labels(n, 6)))
def taken(x, index):
    return F.take(x, index, axis=0)


@expression(matrix)
def sorted_and_best(x):
    values, indices = F.topk(x, 2, axis=1)
    return F.sort(x, axis=0), values, indices, F.argmax(x, axis=1)


@expression(vector)
def clipped(x):
    return F.clip(x, -0.5, 0.5) + F.maximum(x, 0) * F.sign(x)


@expression(matrix)
def shifted_form(x):
    return F.logsumexp(x, axis=1), F.log_softmax(x, axis=1), F.softmax(x, axis=0)


@expression(lambda n: (normal(), normal(n)))
def no_dimensions(a, x):
    return a * a, a * x, F.exp(a)


@expression(lambda n: (normal(0, n), normal(n)))
def no_elements(x, y):
    return x * y, F.sum(x), F.sum(x, axis=0), F.concat([x, x], axis=0)


@expression(lambda n: (normal(n, 4), normal(4, n)))
def einstein(x, y):
    return F.einsum("ij,ji->i", x, y)


@expression(lambda n: (normal(n),))
def polynomial(x):
    return ((x * 2 + 1) * x - 3) * x**3 + 1 / (x * x + 1)


@expression(matrix)
def moved_axes(x):
    return (
        F.permute_dims(x, axes=(1, 0)),
        F.flip(x, axis=0),
        F.roll(x, 1, axis=1),
        F.reshape(x, shape=(2, -1)),
    )


@expression(lambda n: (normal(n), normal(n)))
def stacked(x, y):
    return F.stack([x, y, x], axis=1), F.pad(x, (1, 2)), F.repeat(y, 2)


@expression(lambda n: (positive(n),))
def roots_and_logarithms(x):
    return F.sqrt(x) + F.rsqrt(x) + F.log1p(x) + F.pow(x, 0.5)


@expression(lambda n: (normal(n, dtype="float64"), normal(n, dtype="float32")))
def promoted(x, y):
    return x + y, y * 2, F.floor(y) / 3


@expression(lambda n: (wf.arange(n), wf.arange(n) + 1))
def whole_numbers(x, y):
    return x // y, x % y, x / y, x << 2, F.bitwise_xor(x, y), F.cumulative_sum(x)


@expression(lambda n: (normal(n, 3, 4, 4), positive(3), normal(3), normal(3), positive(3)))
def normalized_by_running_statistics(x, w, b, mean, var):
    return F.batch_norm(x, mean, var, w, b, training=False)


@expression(vector)
def unused_results(x):
    F.exp(x)
    return F.sin(x), x * 1


@expression(lambda n: (normal(n, 4), normal(n, 4)))
def repeated_parts(x, y):
    a = F.exp(x) * y
    b = F.exp(x) * y
    return a + b, a - b
