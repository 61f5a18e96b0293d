"""Arrays that are written: arguments, new ones, views of either, arrays of closures."""

import weft as wf

from ..case import Case, counted, matrix, normal, program, vector, with_state


@program(vector)
def adds_to_its_argument(x):
    x += 1
    return x


@program(lambda n: (wf.arange(2 * n).astype("float32"),))
def writes_a_view(x):
    y = x[1:]
    y *= 2
    return x.sum(), y


@program(matrix)
def writes_a_transposed_view(x):
    x.T[0] = 7
    return x * 1


@program(vector)
def fills_a_new_array(x):
    z = wf.zeros((3,))
    z[0] = x.sum()
    z[1:] += 2
    return z


@program(lambda n: (normal(n), normal(n)))
def swaps(x, y):
    t = x.copy()
    x[...] = y
    y[...] = t


@program(counted)
def overlapping_copy(x):
    x[1:] = x[:-1]
    return x


@program(lambda n: (wf.zeros((n + 1, 2)), 2))
def writes_a_row(x, i):
    x[i] += 1
    x[[0, 1]] = 5
    return x


@program(matrix)
def reads_before_and_after(x):
    before = x.sum()
    x[0] = 0
    middle = x.sum()
    x[:, 1:3] *= -1
    return before, middle, x.sum()


@program(vector)
def writes_in_a_loop(x):
    y = wf.zeros((x.shape[0] + 1,))
    for k in range(x.shape[0]):
        y[k + 1] = y[k] + x[k]
    return y


@program(vector)
def copies_stay(x):
    old = x.copy()
    x *= 3
    return old, x - old


@program(lambda n: (normal(n, n),))
def writes_a_diagonal(x):
    d = x.reshape(-1)[:: x.shape[0] + 1]
    d[...] = 1
    return d


@program(lambda n: (normal(n), normal(n)))
def many_updates(x, v):
    for _ in range(3):
        v *= 0.9
        v -= 0.1 * x
        x += v


@program(lambda n: (wf.arange(n), normal(n)))
def writes_other_types(x, y):
    x += 2
    x[0] = 9
    x[1:] = y[1:] * 10
    return x


@program(lambda n: (wf.zeros((0, n)), normal(n)))
def writes_nothing(x, y):
    x += 1
    y[:0] = 5
    return x, y[2:2]


@program(lambda n: (normal(),), executions_for_others=0)
def writes_no_dimensions(x):
    x += 1
    x[...] = x * 2
    return x


@program(lambda n: (normal(n, 4), normal(4) > 0))
def writes_by_mask(x, mask):
    x[:, ...] = wf.where(mask, x, 0)
    return x


@program(lambda n: (normal(n + 2, 3), wf.tensor([2, 0])))
def writes_by_index(x, index):
    x[index] = 1
    x[index, 1] += 4
    return x[index] * 2


@program(lambda n: (normal(n, 6)[:, 1:5],))
def argument_is_a_view(x):
    x[:, 0] = 2
    return x.T @ x, x[0], x[:, ::2].sum()


@program(lambda n: (normal(n, 4).T,))
def argument_is_transposed(x):
    x -= x.mean(axis=0)
    return x


@with_state
def counter_of_calls():
    count = wf.zeros((), dtype="int64")

    def run(x):
        nonlocal_count = count
        nonlocal_count += 1
        return x * count

    return Case(run, vector, lambda: [count])


@with_state
def running_mean():
    mean, count = wf.zeros((4,)), wf.zeros(())

    def run(x):
        count[...] = count + 1
        mean[...] = mean + (x.mean(axis=0) - mean) / count
        return x - mean

    return Case(run, matrix, lambda: [mean, count])


@with_state
def history_in_a_ring():
    ring = wf.zeros((4, 2))

    def run(x):
        ring[1:] = ring[:-1]
        ring[0] = x[:2]
        return ring.mean(axis=0)

    return Case(run, vector, lambda: [ring])


@with_state
def writes_a_view_of_its_own():
    whole = wf.zeros((3, 3))
    row = whole[1]

    def run(x):
        row[...] = row + x[:3]
        return whole.sum(axis=0), row

    return Case(run, vector, lambda: [whole, row])


@program(vector)
def writes_a_result_before_it_returns(x):
    y = x * 2
    z = y[1:]
    z += 1
    y[0] = 0
    return y, z
