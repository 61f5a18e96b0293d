"""What the generated tests know of the operators of weft, and users need not: given to their classes on import.

One module here for each module of weft that has operators. ``@material(Softmax)`` gives the methods of the class below
it to the operator's class, where subclasses find them:

    samples(cls)               weft.ops.samples.Sample objects: calls that all generated tests run
    errors(cls)                (exception, words of its message, Sample): calls that must fail
    reference(self, *inputs)   the same in NumPy; without one it is derived from the loop or the decomposition
    in_reference_form(self, got, want)
                               what a call gave on another device than a processor, where other results are as right as
                               the reference's: with what may differ, such as signs, as it is there
    opaque                     names of outputs whose content only kernels know
    torch_reference(self, torch, *inputs)
                               the same in PyTorch, where its function of that name is missing or is another one

Classes of users' own operators may have samples and reference in themselves; `weft.testing.check_operator` reads them.
"""

import importlib
from pathlib import Path

from weft.ops.op import Op


def material(cls):
    """Class decorator: gives what it has to an operator's class, which must not have it already."""
    assert issubclass(cls, Op)

    def give(own):
        for name, value in vars(own).items():
            if not name.startswith("__"):
                assert name not in vars(cls), f"{cls.name}: {name} is given twice"
                setattr(cls, name, value)
        return own

    return give


@material(Op)
class _:  # where a class has none
    opaque = ()

    def in_reference_form(self, got, want):
        return got

    @classmethod
    def errors(cls):
        return iter(())

    def torch_reference(self, torch, *inputs):
        return NotImplemented


for _path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    importlib.import_module(f"{__name__}.{_path.stem}")
