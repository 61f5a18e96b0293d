"""TextGenerator: as the network without caches says, for texts of any lengths together, in two programs."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import models

from . import packages
from .small import GPT2, LLAMA

TEXTS = [[3, 1, 4], [1, 5, 9, 2, 6], [7]]
EXAMPLE = Path(__file__).parents[2] / "examples" / "generate.py"


def network(name, **sizes):
    if name == "llama":
        net = models.Llama(models.LlamaConfig(**{**LLAMA, **sizes}))
    else:
        net = models.GPT2(models.GPT2Config(**{**GPT2, **sizes}))
    rng = np.random.default_rng(0)
    for x in net.parameters():
        x[...] = wf.asarray(rng.standard_normal(x.shape) * 0.5 + (x.ndim == 1)).astype("float32")
    return net.eval()


def without_cache(net, text, limit):
    text = list(text)
    for _ in range(limit):
        text.append(int(net(wf.tensor([text]))[0, -1].argmax()))
    return text[-limit:]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_most_likely_tokens_of_texts_of_different_lengths(name):
    net = network(name)
    writer = models.TextGenerator(net)
    expected = [without_cache(net, text, 8) for text in TEXTS]
    assert writer.generate(TEXTS, 8) == expected
    assert [writer.generate([text], 8)[0] for text in TEXTS] == expected  # alone: other caches, no padding
    writer.generate(TEXTS, 4)
    for length in range(2, 9):
        writer.generate([list(range(length)), [1], [3, 4]], 4)
    assert len(writer.step.programs) == 2  # beginnings of any length, and one token


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_logits_are_computed_of_the_last_position_alone(name):
    net, tokens = network(name), wf.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    np.testing.assert_allclose(net(tokens, last=True).numpy(), net(tokens)[:, -1:].numpy(), atol=1e-5)
    shapes, head = [], net.lm_head.forward
    net.lm_head.forward = lambda x: shapes.append(x.shape) or head(x)
    models.TextGenerator(net).generate(TEXTS, 2)
    assert {int(shape[1]) for shape in shapes} == {1}


def test_stop_tokens_and_streams():
    net = network("llama", num_hidden_layers=1)
    free = models.TextGenerator(net).generate(TEXTS, 8)
    stop = free[1][3]
    expected = [text[: text.index(stop) + 1] if stop in text else text for text in free]
    writer = models.TextGenerator(net, stop=[stop])
    assert writer.generate(TEXTS, 8) == expected
    steps = list(writer.stream(TEXTS, 8))
    assert len(steps) == max(map(len, expected))
    assert [[step[k] for step in steps if step[k] is not None] for k in range(3)] == expected


def test_drawn_tokens_have_their_chances():
    net, rows = network("gpt2", n_layer=1), 20000
    logits = np.array([1.0, 3.0, 2.0, -1.0, 2.0, 0.0], np.float32)
    for temperature, top_k, top_p in (
        (1.0, None, 1.0),
        (0.5, 3, 1.0),
        (2.0, None, 0.6),
        (1.0, 4, 0.8),
        (1.0, 1, 0.1),
    ):
        writer = models.TextGenerator(net, temperature=temperature, top_k=top_k, top_p=top_p)
        drawn = writer._chosen(wf.broadcast_to(wf.asarray(logits), (rows, 6)), wf.random.key(5)).numpy()
        scores = np.exp(logits.astype(np.float64) / temperature)
        order = np.argsort(-scores, kind="stable")
        chances = np.zeros(6)
        chances[order[:top_k]] = scores[order[:top_k]]
        chances /= chances.sum()
        before = np.cumsum(chances[order]) - chances[order]
        chances[order[before >= top_p]] = 0
        chances /= chances.sum()
        counts = np.bincount(drawn, minlength=6)
        spread = np.sqrt(rows * chances * (1 - chances))
        assert (abs(counts - rows * chances) <= 5 * spread).all(), (temperature, top_k, top_p)


def test_seeds_decide():
    writer = models.TextGenerator(network("llama", num_hidden_layers=1), temperature=1.5, top_p=0.95)
    first = writer.generate(TEXTS, 10, seed=1)
    assert writer.generate(TEXTS, 10, seed=1) == first
    assert writer.generate(TEXTS, 10, seed=2) != first
    assert len({token for text in first for token in text}) > 5  # each step draws other numbers


def test_narrow_weights():
    net = network("llama", num_hidden_layers=1).astype("bfloat16")
    writer = models.TextGenerator(net, temperature=1.0, top_k=5)
    assert [len(text) for text in writer.generate(TEXTS, 5)] == [5, 5, 5]
    assert writer.caches[0].keys.dtype.name == "bfloat16"


def test_refusals():
    net = network("gpt2", n_layer=1)
    for options, message in (
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            models.TextGenerator(net, **options)
    writer = models.TextGenerator(net, capacity=10)
    for texts, limit, message in (
        ([], 1, r"lengths are \[\]"),
        ([[1], []], 1, r"lengths are \[1, 0\]"),
        ([[1, 2, 3], [1] * 6], 5, "6 tokens and 5 new ones are more than the capacity of 10"),
    ):
        with pytest.raises(ValueError, match=message):
            writer.generate(texts, limit)
    assert writer.generate([[1, 2]], 0) == [[]]
    assert len(writer.generate([[1, 2]], 8)[0]) == 8
    with pytest.raises(ValueError, match="GPT2 is in training mode"):
        models.TextGenerator(net.train())


def test_the_example(tmp_path, capsys):
    tokenizers = pytest.importorskip("tokenizers")
    net = network("gpt2")
    wf.save(str(tmp_path / "model.safetensors"), net.state_dict())
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], **GPT2}))
    vocabulary = {f"w{k}": k for k in range(GPT2["vocab_size"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    main = runpy.run_path(str(EXAMPLE))["main"]
    (text,) = main([str(tmp_path), "w3 w1 w4", "--limit", "4"])
    expected = [3, 1, 4, *without_cache(net, [3, 1, 4], 4)]
    assert text == " ".join(f"w{k}" for k in expected)
    assert text in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_as_transformers(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = packages.transformers()
    torch.manual_seed(0)
    if name == "llama":
        theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    else:
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
    with torch.no_grad():
        for x in theirs.parameters():
            x.copy_(torch.randn_like(x) * 0.5 + (x.ndim == 1))
    theirs.eval().save_pretrained(tmp_path)
    longest = max(map(len, TEXTS))
    tokens = torch.tensor([[0] * (longest - len(text)) + text for text in TEXTS])
    mask = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in TEXTS])
    expected = theirs.generate(
        tokens, attention_mask=mask, max_new_tokens=10, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    writer = models.TextGenerator(models.from_pretrained(tmp_path))
    assert writer.generate(TEXTS, 10) == expected[:, longest:].tolist()
