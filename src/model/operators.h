// model/operators.h: the operators that a model calls, said without calling them. A test compares them with what steps
// of each family call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "model/weight_survey.h"

namespace dsa {

struct OperatorNeed {
  std::string_view name;             // of a member of KernelTable
  std::vector<std::string> used_by;  // blocks
};

// In the order of a step. The survey says which number formats the experts have; MXFP4 experts may go through the FP8
// workspace.
std::vector<OperatorNeed> operators_of(const ModelConfig& config, const WeightSurvey& survey,
                                       bool fp8_workspace = false);

}  // namespace dsa
