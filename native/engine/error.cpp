#include "engine/error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <typeinfo>

namespace weft {
namespace {

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string result = status == 0 ? name : type.name();
  std::free(name);
  if (result.starts_with("weft::")) result.erase(0, 6);
  return result;
}

}  // namespace

Ref<Error> error_from_current_exception() {
  try {
    throw;
  } catch (const TaskFailure& failure) {
    return failure.error;
  } catch (const std::exception& e) {
    return make_ref<Error>(type_name(typeid(e)) + ": " + e.what(), std::current_exception());
  } catch (abi::__forced_unwind&) {
    throw;  // the thread is being ended; this must not be caught
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return make_ref<Error>("C++ exception of type " + (type ? type_name(*type) : std::string("unknown")),
                           std::current_exception());
  }
}

}  // namespace weft
