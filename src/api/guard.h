// api/guard.h: the boundary: every body runs inside guard(), which lets no exception out and remembers the
// failure.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/status.h"
#include "dsa_sdk.h"
#include "engine/runtime.h"

namespace dsa::api {

// What a body comes to: a failure, or success with or without a remark.
class Outcome {
 public:
  Outcome(Status status) : status_(std::move(status)) {}  // NOLINT: so that DSA_TRY works in bodies
  Outcome(dsa_status remark) : remark_(remark) {}         // NOLINT
  const Status& status() const { return status_; }
  dsa_status code() const { return status_.is_ok() ? remark_ : dsa_status(status_.code()); }

 private:
  Status status_;
  dsa_status remark_ = DSA_OK;
};

// The last failure of the calling thread. Plain memory: setting it cannot fail, and nothing runs at the
// thread's end.
void set_last_error(const ErrorInfo& info) noexcept;
void set_last_error(Code code, Fix fix, std::string_view message) noexcept;

// Tests throw from here, inside of each entry point.
extern std::atomic<void (*)()> guard_hook;

// From which callbacks a function may be called.
enum class Callable {
  outside,
  wakeup
};  // outside: not from wake-ups; nothing may be called from log and thread callbacks

template <class F>
dsa_status guard(Callable callable, const F& body) noexcept {
  try {
    if (void (*hook)() = guard_hook.load(std::memory_order_relaxed)) hook();
    const CallbackKind kind = current_callback();
    if (kind == CallbackKind::silent || (kind == CallbackKind::wakeup && callable == Callable::outside)) {
      set_last_error(Code::reentrant, Fix::none, "this function cannot be called from inside this callback");
      return DSA_ERROR_REENTRANT;
    }
    const Outcome outcome = body();
    if (!outcome.status().is_ok()) set_last_error(outcome.status().info());
    return outcome.code();
  } catch (const std::bad_alloc&) {
    set_last_error(Code::out_of_memory, Fix::free_memory, "out of host memory");
    return DSA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    set_last_error(Code::internal, Fix::report, e.what());
    return DSA_ERROR_INTERNAL;
  } catch (...) {
    set_last_error(Code::internal, Fix::report, "an unknown exception");
    return DSA_ERROR_INTERNAL;
  }
}

template <class F>
dsa_status guard(const F& body) noexcept {
  return guard(Callable::outside, body);
}

// For functions that return nothing.
template <class F>
void guard_void(const F& body) noexcept {
  try {
    if (void (*hook)() = guard_hook.load(std::memory_order_relaxed)) hook();
    body();
  } catch (...) {
  }
}

}  // namespace dsa::api
