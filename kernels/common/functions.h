// kernels/common/functions.h: scalar functions that several references share, in f64.
#pragma once

#include <cmath>

namespace dsa {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// log(1 + e^x), which for large x is x.
inline double softplus(double x) { return x > 40 ? x : std::log1p(std::exp(x)); }

}  // namespace dsa
