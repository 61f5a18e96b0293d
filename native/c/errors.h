// errors.h: what functions of the C interface throw, as a status and a text of the thread.
#pragma once

#include <new>
#include <string>

#include "engine/engine.h"
#include "weft/engine.h"

namespace weft::c {

struct LastError {
  std::string text, operation;
};
LastError& last_error() noexcept;  // this thread's
weft_status report(weft_status status, std::string text, std::string operation = {});
std::string described(const Error& error);

// Calls f; what it throws becomes a status and a text.
template <class F>
weft_status guarded(F&& f) {
  try {
    f();
    return WEFT_OK;
  } catch (const OperationFailed& failed) {
    const Error& first = *failed.errors.front();
    std::string text = described(first);
    if (failed.errors.size() > 1)
      text += " (and " + std::to_string(failed.errors.size() - 1) + " more failures)";
    return report(WEFT_FAILED, std::move(text), first.operation);
  } catch (const TimedOut& error) {
    return report(WEFT_TIMED_OUT, error.what());
  } catch (const std::bad_alloc&) {
    return report(WEFT_NO_MEMORY, "there is no memory for this");
  } catch (const std::exception& error) {
    return report(WEFT_MISUSE, error.what());
  }
}

template <class T>
T& existing(T* handle, const char* what) {
  if (!handle) throw EngineMisuse(std::string(what) + " is NULL");
  return *handle;
}

}  // namespace weft::c
