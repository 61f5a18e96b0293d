"""transformers' side of benchmarks/interop.py: a Llama of 100 million parameters, on PyTorch.

python transformers_side.py FOLDER writes it, with random weights; without arguments it serves, from BENCH_FOLDER.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers
from _protocol import BENCH_THREADS, Cases, Run, serve

VOCABULARY, NEW = 32000, 64
cases = Cases()


def make(folder: str) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def generation(beginning: int, new: int) -> Run:
    torch.set_num_threads(BENCH_THREADS)
    net = transformers.LlamaForCausalLM.from_pretrained(os.environ["BENCH_FOLDER"]).eval()
    text = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, (1, beginning)))
    options = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "eos_token_id": None}

    def run() -> float:
        with torch.no_grad():
            tokens = net.generate(text, attention_mask=torch.ones_like(text), **options)
        return float(tokens[:, beginning:].sum())

    return run


@cases.add("prefill", "generate", precisions=("f32",))
def prefill(variant: str, precision: str) -> Run:
    return generation(256, 1)


@cases.add("decode", "generate", precisions=("f32",))
def decode(variant: str, precision: str) -> Run:
    return generation(16, NEW)


if __name__ == "__main__":
    if sys.argv[1:]:
        make(sys.argv[1])
    else:
        serve("transformers", transformers.__version__, cases)
