// kernels/linears/wide_linears.h: linears where rows take so much shared memory that a multiprocessor holds one block.
#pragma once

#include "kernels/linears/linears.h"

namespace dsa {

// False: nothing was done, for other kernels do as well or this one cannot.
bool wide_linears(const LinearsArgs& a, Queue& queue);

}  // namespace dsa
