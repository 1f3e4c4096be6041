#include "allocations.h"

#include <malloc.h>

#include <algorithm>

namespace {

thread_local bool t_counting = false;
thread_local int64_t t_count, t_failing, t_bytes, t_peak;

}  // namespace

namespace dsa::test {

Allocations::Allocations(int64_t failing) {
  t_count = t_bytes = t_peak = 0;
  t_failing = failing;
  t_counting = true;
}
Allocations::~Allocations() { t_counting = false; }
size_t Allocations::peak_bytes() const { return size_t(t_peak); }
int64_t Allocations::count() const { return t_count; }

}  // namespace dsa::test

#if DSA_COUNTS_ALLOCATIONS
namespace {

bool fails() { return t_counting && t_count++ == t_failing; }

void* taken(void* memory) {
  if (t_counting && memory) t_peak = std::max(t_peak, t_bytes += int64_t(malloc_usable_size(memory)));
  return memory;
}

void given(void* memory) {
  if (t_counting && memory) t_bytes -= int64_t(malloc_usable_size(memory));
}

}  // namespace

// The program and its libraries call these instead of those of the C library.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) { return fails() ? nullptr : taken(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) { return fails() ? nullptr : taken(__libc_calloc(n, bytes)); }
void* realloc(void* memory, size_t bytes) {
  if (fails()) return nullptr;
  given(memory);
  return taken(__libc_realloc(memory, bytes));
}
void free(void* memory) {
  given(memory);
  __libc_free(memory);
}
}
#endif
