"""What symbols cannot do yet; each test stands in known_gaps.txt until it can."""

import weft as wf
import weft.symbol as sym


def test_control_flow_of_symbols():
    x = sym.var("x")
    y = wf.cond((x > 0).all(), lambda x: x * 2, lambda x: -x, x)
    assert y.eval(x=[1.0])[0].item() == 2.0
