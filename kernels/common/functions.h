// kernels/common/functions.h: scalar functions that several references share, in f64.
#pragma once

#include <cmath>

namespace dsa {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace dsa
