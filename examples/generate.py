"""Continues texts with a language model of a folder that transformers wrote: Llama or GPT-2.

    python examples/generate.py FOLDER "Once upon a time" "In the beginning"
    python examples/generate.py FOLDER "Once upon a time" --temperature 0.8 --top-k 50 --seed 3

FOLDER has config.json, the weights and tokenizer.json. Texts of one call are continued together. Needs the package
tokenizers.
"""

from __future__ import annotations

import argparse
import json
import os

from weft import models
from weft.data.text import Tokenizer


def stop_tokens(folder: str) -> list[int]:
    """The tokens that end a text: eos_token_id of generation_config.json, else of config.json."""
    for name in ("generation_config.json", "config.json"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path) as file:
                tokens = json.load(file).get("eos_token_id")
            if tokens is not None:
                return tokens if isinstance(tokens, list) else [tokens]
    return []


def main(arguments: list[str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("texts", nargs="+", metavar="text")
    parser.add_argument("--limit", type=int, default=50, help="new tokens of a text, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the most likely token")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", help="of the parameters, such as bfloat16; by default that of the weights")
    options = parser.parse_args(arguments)

    tokenizer = Tokenizer(os.path.join(options.folder, "tokenizer.json"))
    writer = models.TextGenerator(
        models.from_pretrained(options.folder, dtype=options.dtype),
        stop=stop_tokens(options.folder),
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    )
    beginnings = [tokenizer.encode(text).tolist() for text in options.texts]
    new = writer.generate(beginnings, options.limit, seed=options.seed)
    texts = [tokenizer.decode(first + more) for first, more in zip(beginnings, new, strict=True)]
    print("\n\n".join(texts))
    return texts


if __name__ == "__main__":
    main()
