// kernels/common/route.h: how a product takes its activations.
#pragma once

namespace dsa {

// exact  As they are.
// fast   Rounded first, as the header of the operator says.
enum class Route { exact, fast };

}  // namespace dsa
