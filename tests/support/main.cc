#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "tests/support/values.h"

const dsa::KernelVariant* dsa::test::device_kernels() { return nullptr; }
bool dsa::test::reaches_far_pages() { return true; }

// Tests ask for more memory than there is and expect to be refused, not stopped.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
