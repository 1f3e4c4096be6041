// tests/support/timing.h: processor time of this process, and how much more of it a sanitizer may take.
#pragma once

#include <ctime>

namespace dsa::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr double kSlowdown = kSanitized ? 30 : 1;

inline double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace dsa::test
