// tests/support/cache_format.h: formats of a cache on the command lines of tests and benchmarks.
#pragma once

#include <string>

#include "kernels/common/paged.h"

namespace dsa::test {

// "f32", "bf16" or "fp8"; false for others.
inline bool parse_cache_format(const std::string& name, CacheFormat& format) {
  if (name != "f32" && name != "bf16" && name != "fp8") return false;
  format = name == "fp8" ? CacheFormat::fp8 : name == "bf16" ? CacheFormat::bf16 : CacheFormat::f32;
  return true;
}

}  // namespace dsa::test
