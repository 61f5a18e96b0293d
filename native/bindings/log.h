// log.h: what lazy evaluation has put off, in the order in which it was asked for.
#pragma once

#include "bindings/scribe.h"

namespace weft {

// The scribe that an object of `_core.Log` is.
Scribe& scribe_of(nb::handle log);

}  // namespace weft
