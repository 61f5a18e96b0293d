"""Models learn, with everything together."""

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim


def images(count):
    """Squares at one of four places, with noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, count)
    x = rng.standard_normal((count, 1, 8, 8)).astype("float32") * 0.3
    for k, label in enumerate(labels):
        row, column = 4 * (label // 2), 4 * (label % 2)
        x[k, 0, row : row + 4, column : column + 4] += 1
    return x, labels


class Recurrent(M.Module):
    def __init__(self):
        self.lstm = M.LSTM(8, 16, batch_first=True)
        self.attention = M.MultiheadAttention(16, 4)
        self.head = M.Linear(16, 4)

    def forward(self, x):
        y, _ = self.lstm(x.reshape(x.shape[0], 8, 8))
        return self.head(F.mean(self.attention(y), axis=1))


MODELS = {
    "linear": lambda: M.Sequential(M.Flatten(), M.Linear(64, 4)),
    "convolutional": lambda: M.Sequential(
        M.Conv2d(1, 8, 3, padding=1),
        M.BatchNorm2d(8),
        M.ReLU(),
        M.MaxPool2d(2),
        M.Conv2d(8, 8, 3, padding=1),
        M.GELU(),
        M.AdaptiveAvgPool2d(2),
        M.Flatten(),
        M.Dropout(0.1),
        M.Linear(32, 4),
    ),
    "recurrent": Recurrent,
}


@pytest.mark.parametrize("kind", [("SGD", {"lr": 0.05, "momentum": 0.9}), ("AdamW", {"lr": 0.01})], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_models_learn(name, kind):
    wf.random.seed(1)
    net = MODELS[name]()
    method, options = kind
    epochs = 20 if name == "recurrent" else 8
    opt = getattr(optim, method)(net.parameters(), **options)
    schedule = optim.lr_scheduler.CosineAnnealingLR(opt, 8 * epochs)
    loader = data.DataLoader(data.ArrayDataset(*images(256)), batch_size=32, shuffle=True)
    gm = wf.GradManager().attach(net.parameters())
    for _ in range(epochs):
        for x, y in loader:
            with gm:
                gm.backward(F.cross_entropy(net(x), y))
            optim.clip_grad_norm(net.parameters(), 5.0)
            opt.step().clear_grad()
            schedule.step()
    accuracy = wf.metrics.Accuracy()
    net.eval()
    for x, y in data.DataLoader(data.ArrayDataset(*images(128)), batch_size=64):
        accuracy.update(net(x), y)
    assert accuracy.compute() > 0.95
