// tests/io/allocations.h: counts what malloc gives, and makes it fail. With GCC and glibc, and not under
// sanitizers, which have their own; elsewhere it counts nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__) || !defined(__GLIBC__)
#define DSA_COUNTS_ALLOCATIONS 0
#else
#define DSA_COUNTS_ALLOCATIONS 1
#endif

namespace dsa::test {

// Of this thread, while one lives; they do not nest. `failing`: the number of the allocation that fails, from 0.
class Allocations {
 public:
  explicit Allocations(int64_t failing = -1);
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  size_t peak_bytes() const;  // beyond what was there at the start
  int64_t count() const;
};

}  // namespace dsa::test
