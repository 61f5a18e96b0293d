"""A folder as transformers writes it is read, generated from, and exported to ONNX and for C, with the same answers."""

import json

import numpy as np
import pytest
from tests.examples.test_native_export import results_in_c
from tests.models import packages
from tests.models.small import LLAMA

import weft as wf
from weft import models

LENGTHS = (5, 8)


def folder_by_hand(folder):
    """The folder, and logits of tokens by the network that it was written from."""
    wf.random.seed(0)
    net = models.Llama(models.LlamaConfig(**LLAMA)).eval()
    for x in net.parameters():
        x[...] = wf.random.normal(float(x.ndim == 1), 0.5, x.shape)
    wf.save(str(folder / "model.safetensors"), net.state_dict())
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **LLAMA}))
    return lambda tokens: net(wf.asarray(tokens)).numpy()


def folder_of_transformers(folder):
    torch, transformers = pytest.importorskip("torch"), packages.transformers()
    torch.manual_seed(0)
    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()
    with torch.no_grad():
        for x in net.parameters():
            x.copy_(torch.randn_like(x) * 0.5 + (x.ndim == 1))
    net.save_pretrained(folder)
    return lambda tokens: net(torch.tensor(tokens)).logits.detach().numpy()


@pytest.mark.parametrize("write", [folder_by_hand, folder_of_transformers])
def test_a_folder_is_read_generated_from_and_exported(write, tmp_path):
    logits = write(tmp_path)
    close = {"rtol": 2e-4, "atol": 2e-4 * abs(logits(np.arange(8)[None])).max()}
    net = models.from_pretrained(tmp_path)
    text = [3, 1, 4, 1, 5]
    new = models.TextGenerator(net).generate([text], 6)[0]
    for token in new:
        assert token == logits(np.array([text]))[0, -1].argmax()
        text.append(token)
    inputs = [np.arange(n)[None] for n in LENGTHS]
    traced = wf.trace(lambda tokens: net(tokens), dynamic={"tokens": 1})
    with wf.no_grad():
        traced(wf.asarray(inputs[0]))
        traced.export(tmp_path / "native", target="native", sizes=[{"tokens": x.shape} for x in inputs])
    in_c = results_in_c(tmp_path / "native", [[x] for x in inputs], tmp_path)
    for k, x in enumerate(inputs):
        np.testing.assert_allclose(in_c[f"{k}.0"], logits(x), **close)


@pytest.mark.parametrize("write", [folder_by_hand, folder_of_transformers])
def test_a_folder_becomes_onnx(write, tmp_path):
    pytest.importorskip("onnx")
    logits = write(tmp_path)
    net, path = models.from_pretrained(tmp_path), tmp_path / "net.onnx"
    example = wf.asarray(np.arange(LENGTHS[0])[None])
    wf.interop.onnx.export(net, [example], path, inputs=["tokens"], dynamic={"tokens": {1: "t"}})
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    for x in (np.arange(n)[None] for n in LENGTHS):
        expected = logits(x)
        y = session.run(None, {"tokens": x})[0]
        np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-4 * abs(expected).max())
