"""What MXNet 1.9.1 computes for networks: run by a Python that has it, which weft's own has not.

    python3.11 -m venv mx; mx/bin/pip install mxnet==1.9.1 numpy==1.23.5
    mx/bin/python tests/interop/mxnet_reference.py               writes expected_mxnet.json for the cases of mxnet_cases
    mx/bin/python tests/interop/mxnet_reference.py FILE          answers the networks of a JSON file, on stdout

A network is {"symbol": text, "inputs": {name: nested list}, "gradients": [names], "integers": [names]};
an answer has its outputs in
training and in inference, the gradients of the weighted sum of outputs (weights: cos of 0, 1, 2, ...), and its states.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mxnet as mx
import mxnet_cases


def answer(network):
    symbol = mx.sym.load_json(network["symbol"])
    arrays = {}
    for name, x in network["inputs"].items():
        dtype = np.int32 if name in network.get("integers", ()) else np.float32
        arrays[name] = mx.nd.array(np.array(x, dtype), dtype=dtype)
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    gradients = {name: mx.nd.zeros(arrays[name].shape) for name in network["gradients"] if name in arguments}
    exe = symbol.bind(
        mx.cpu(),
        {name: arrays[name] for name in arguments},
        args_grad=gradients,
        grad_req={name: "write" if name in gradients else "null" for name in arguments},
        aux_states={name: arrays[name].copy() for name in states},
    )
    inference = [plain(y) for y in exe.forward(is_train=False)]
    training = exe.forward(is_train=True)
    result = {"inference": inference, "training": [plain(y) for y in training]}
    if gradients:
        heads = [mx.nd.array(np.cos(np.arange(y.size)).reshape(y.shape), dtype=y.dtype) for y in training]
        exe.backward(heads)
    result["gradients"] = {name: plain(dx) for name, dx in gradients.items()}
    result["states"] = {name: plain(exe.aux_dict[name]) for name in states}
    return result


def plain(x):
    x = x.asnumpy()
    rounded = [None if not np.isfinite(v) else float(f"{v:.7g}") for v in x.astype(np.float64).ravel()]
    return {"shape": list(x.shape), "dtype": str(x.dtype), "values": rounded}


def network_of(case):
    inputs = {f"x{k}": x.tolist() for k, x in enumerate(mxnet_cases.values(case))}
    gradients = [f"x{k}" for k, (_, kind) in enumerate(case[2]) if kind in ("n", "p", "u")]
    integers = [f"x{k}" for k, (_, kind) in enumerate(case[2]) if kind[0] == "I"]
    return {
        "symbol": mxnet_cases.symbol_text(case),
        "inputs": inputs,
        "gradients": gradients,
        "integers": integers,
    }


def answers(networks):
    for network in networks:
        try:
            yield answer(network)
        except mx.MXNetError as error:
            if "non-differentiable" in str(error) or "_backward" in str(error):
                yield answer({**network, "gradients": []})
            else:
                yield answer_without_mkldnn(network)


def answer_without_mkldnn(network):
    """That of a process without MKLDNN, which lacks some deconvolutions."""
    if os.environ.get("MXNET_MKLDNN_ENABLED") == "0":
        raise RuntimeError(network["symbol"])
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump([network], file)
        file.flush()
        environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0"}
        command = [sys.executable, __file__, file.name]
        return json.loads(
            subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
        )[0]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(list(answers(json.loads(Path(sys.argv[1]).read_text())))))
    else:
        results = list(answers(map(network_of, mxnet_cases.CASES)))
        lines = ",\n".join(json.dumps(result, separators=(",", ":")) for result in results)
        (Path(__file__).parent / "expected_mxnet.json").write_text(f"[\n{lines}\n]\n")
