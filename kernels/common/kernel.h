// kernels/common/kernel.h: one operator, one implementation per instruction set and one for GPUs.
#pragma once

#include "kernels/common/queue.h"

// Declares `void <variant>::<name>(const Args&, Queue&)` for every variant; the build links those that exist.
// clang-format off
#define DSA_DECLARE_KERNEL(name, Args)                    \
  namespace ref { void name(const Args&, Queue&); }        \
  namespace generic { void name(const Args&, Queue&); }    \
  namespace avx2 { void name(const Args&, Queue&); }       \
  namespace avx512 { void name(const Args&, Queue&); }     \
  namespace avx512vnni { void name(const Args&, Queue&); } \
  namespace cuda { void name(const Args&, Queue&); }       \
  namespace sm90 { void name(const Args&, Queue&); }       \
  static_assert(true, "a semicolon follows")
// clang-format on
