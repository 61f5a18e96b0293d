"""Writes the networks of the inference workloads as ONNX, in float32: python _torch_export.py FOLDER."""

import sys
from pathlib import Path

import torch
from _torch_models import GPT, HEAD, HEADS, LAYERS, POSITIONS, VOCABULARY, Decoder, resnet50


def export(folder: Path, name: str, model: torch.nn.Module, *arguments, **names) -> None:
    part = folder / f"{name}.part"  # a file under its name is whole
    torch.onnx.export(model.eval(), arguments, part, dynamo=True, external_data=False, verbose=False, **names)
    part.rename(folder / f"{name}.onnx")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.no_grad():
        for batch in (1, 16):
            export(folder, f"resnet50-infer-b{batch}", resnet50(), torch.randn(batch, 3, 224, 224))
        export(folder, "gpt-prefill", GPT(), torch.randint(0, VOCABULARY, (1, POSITIONS)))
        cache = torch.randn(LAYERS, 1, HEADS, POSITIONS, HEAD)
        token, position = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([POSITIONS - 1])
        names = {
            "input_names": ["token", "position", "keys", "values"],
            "output_names": ["logits", "new_keys", "new_values"],
        }
        export(folder, "gpt-decode", Decoder(), token, position, cache, cache.clone(), **names)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
