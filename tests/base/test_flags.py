import pytest

from weft.base import flags
from weft.base.flags import Flag


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("WEFT_ENGINE", None, "threaded"),
        ("WEFT_ENGINE", "naive", "naive"),
        ("WEFT_NUM_THREADS", None, None),
        ("WEFT_NUM_THREADS", "", None),
        ("WEFT_NUM_THREADS", "3", 3),
        ("WEFT_CHECK", "1", True),
        ("WEFT_CHECK", "0", False),
        ("WEFT_SCHEDULE_SEED", "0", 0),
        ("WEFT_FORK_TIMEOUT_S", "2.5", 2.5),
        ("WEFT_ISA", None, "native"),
        ("WEFT_ISA", "avx2", "avx2"),
        ("WEFT_DNNL_LIB", "/x/libdnnl.so.3", "/x/libdnnl.so.3"),
    ],
)
def test_values(monkeypatch, name, text, value):
    monkeypatch.delenv(name, raising=False)
    if text is not None:
        monkeypatch.setenv(name, text)
    assert flags.get(name) == value
    assert type(flags.get(name)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("WEFT_ENGINE", "fast", "threaded or naive"),
        ("WEFT_NUM_THREADS", "0", "an integer of at least 1"),
        ("WEFT_NUM_THREADS", "two", "an integer of at least 1"),
        ("WEFT_CHECK", "yes", "0 or 1"),
        ("WEFT_ISA", "avx", "sse4 or avx2 or avx512 or native"),
        ("WEFT_FORK_TIMEOUT_S", "-1", "a number of at least 0"),
        ("WEFT_FORK_TIMEOUT_S", "nan", "a number of at least 0"),
    ],
)
def test_bad_values_name_the_switch_and_what_it_takes(monkeypatch, name, text, accepted):
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"^{name}: cannot read '{text}'; accepted: {accepted}$"):
        flags.get(name)


def test_an_unknown_switch_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"no switch WEFT_NONE; there are: WEFT_ENGINE, "):
        flags.get("WEFT_NONE")


def test_the_table_shows_every_switch():
    assert [line.split("`")[1] for line in flags.render().splitlines()[2:]] == list(flags.FLAGS)


@pytest.mark.parametrize("flag", flags.FLAGS.values(), ids=lambda flag: flag.name)
def test_the_table_is_well_formed(flag: Flag):
    assert flag.doc
    assert not flag.doc.endswith(".")
    assert flag.default is None or type(flag.default) is flag.type
