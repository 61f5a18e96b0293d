#include "storage/context.h"

namespace weft {

constinit thread_local Context context_of_thread;

}  // namespace weft
