// tests/bench/published.h: configs of tests/model/published, as they are.
#pragma once

namespace dsa::bench {

extern const char* const kKimiLinear48b;
extern const char* const kKimiK31Pro;
extern const char* const kGlm53Flash;

}  // namespace dsa::bench
