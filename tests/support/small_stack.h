// tests/support/small_stack.h: runs a function on a thread with as little stack as a host may give us.
#pragma once

#include <pthread.h>

#include <exception>
#include <functional>
#include <stdexcept>

namespace dsa::test {

// What a thread sanitizer keeps on the stack of a thread comes on top.
#if defined(__SANITIZE_THREAD__)
constexpr size_t kSanitizerStack = size_t(1) << 20;
#else
constexpr size_t kSanitizerStack = 0;
#endif

inline void on_small_stack(const std::function<void()>& f, size_t bytes = size_t(512) << 10) {
  struct Call {
    const std::function<void()>& f;
    std::exception_ptr failure;
  } call{f, nullptr};
  const auto run = [](void* argument) -> void* {
    Call& c = *static_cast<Call*>(argument);
    try {
      c.f();
    } catch (...) {
      c.failure = std::current_exception();
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes + kSanitizerStack);
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, run, &call);
  pthread_attr_destroy(&attributes);
  if (failed) throw std::runtime_error("no thread");
  pthread_join(thread, nullptr);
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace dsa::test
