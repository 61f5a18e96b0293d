"""No function above 80 lines, no file above 700, and no class name that means two things."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "weft"
GENERATED = {"src/weft/ops/index.py"}  # by weft.ops.make_index
MOST_LINES_OF_FUNCTIONS, MOST_LINES_OF_FILES = 80, 700

# What users write may be called as the operator behind it is, and so may the words of the language of loops.
FACES = ("data/collator", "data/transforms", "expr", "interop", "metrics", "models", "module", "quantization")


def sources(folder, *endings):
    for path in sorted((ROOT / folder).rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in endings and name not in GENERATED:
            yield name, path.read_text()


def test_no_file_is_long():
    files = [*sources("src/weft", ".py"), *sources("native", ".cpp", ".h")]
    long = {name: count for name, text in files if (count := text.count("\n")) > MOST_LINES_OF_FILES}
    assert not long


def test_no_function_is_long():
    long = {}
    for name, text in sources("src/weft", ".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = node.end_lineno - node.lineno + 1
                if count > MOST_LINES_OF_FUNCTIONS:
                    long[f"{name}: {node.name}"] = count
    assert not long


def test_no_native_function_is_long():
    """Functions of namespaces and methods that are defined in their class, as clang-format writes them."""
    long = {}
    for name, text in sources("native", ".cpp", ".h"):
        if "/tests/" in name:
            continue
        lines = text.splitlines()
        for first, line in enumerate(lines):
            begins = re.match(
                r"(|  )(?!namespace|struct|class|enum|extern|union|//|#)\w.*\) ?[\w ]*\{$", line
            )
            if not begins or re.match(r"\s*(if|for|while|switch|TEST)\b", line) or " bind_" in line:
                continue  # bindings are tables
            end = next(k for k in range(first + 1, len(lines)) if lines[k].startswith(f"{begins[1]}}}"))
            if end - first + 1 > MOST_LINES_OF_FUNCTIONS:
                long[f"{name}: {line.strip()}"] = end - first + 1
    assert not long


def test_a_class_name_means_one_thing():
    places = defaultdict(list)
    for name, text in sources("src/weft", ".py"):
        for node in ast.parse(text).body:
            face = next((each for each in FACES if name.startswith(f"src/weft/{each}")), "")
            face = name if face in ("interop", "models") else face  # each network has its own blocks
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name, face].append(name)
    assert {name: where for (name, _), where in places.items() if len(where) > 1} == {}
