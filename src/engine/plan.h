// engine/plan.h: what a model needs, what this build and this machine have for it, and where everything would go.
//
// A plan reads headers and changes nothing. It is made of a folder that is complete or not, or of a config.json alone,
// and is the one source of dsa_plan_explain() and of the program dsa_inspect.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/status.h"
#include "engine/engine.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "model/operators.h"
#include "model/weight_survey.h"

namespace dsa {

struct HostMemory {
  uint64_t total = 0, free = 0;

  static HostMemory now();
};

// What there is to run on.
struct Machine {
  HostMemory memory;
  std::vector<BackendKernels> backends = backends_of_build();
  std::vector<DeviceInfo> gpus = {};

  static Machine here() { return with(list_gpus("")); }
  static Machine with(std::vector<DeviceInfo> gpus);
};

struct PlanRequest {
  int64_t context = 0;                                // 0: the longest that fits
  int64_t sessions = 1;                               // at the same time
  uint64_t host_bytes = 0;                            // ceiling; 0: what is free
  uint64_t leave_host_bytes = 0;                      // of what is free, to others
  std::vector<std::string> devices = {};              // empty: the first GPU on which it fits, else the CPU
  uint64_t device_bytes = 0, leave_device_bytes = 0;  // as those of the host
  std::optional<CacheFormat> cache_format = {};       // none: f32 on the CPU, bf16 on a GPU
};

// Where an operator's kernel comes from on one backend.
struct KernelSource {
  std::string backend, variant;
  std::string why_missing;  // empty: it is covered
};

struct OperatorCover {
  OperatorNeed need;
  std::vector<KernelSource> kernels;  // one for each backend of the build

  bool is_covered() const;  // by a backend that can run here
};

struct Placement {
  std::string device = kCpuDevice;
  bool feasible = false;
  int64_t context = 0, sessions = 1;
  uint64_t limit = 0;                                 // host memory that may be used
  uint64_t host_bytes = 0;                            // used, with full contexts
  uint64_t missing_bytes = 0;                         // of an infeasible one
  uint64_t disk_bytes_per_token = 0;                  // expected, if a token takes each expert alike
  double experts_on_device = 0, experts_on_host = 0;  // shares
  uint64_t device_limit = 0;                          // memory of the device that may be used
  std::vector<std::pair<const char*, uint64_t>> device_parts = {};  // what is used of it, by purpose
  Products products = Products::cpu;
  CacheFormat cache_format = CacheFormat::f32;
  int64_t states_per_session = 2;  // beside the present state of a session lies the next one
  // The longest contexts, with all weights in memory and with experts read from the disk; 0: none.
  int64_t context_resident = 0, context_from_disk = 0;
  std::vector<std::string> advice;  // what would make it feasible, or faster

  bool on_gpu() const { return device != kCpuDevice; }
  uint64_t device_bytes() const;
  bool fits_device() const { return device_bytes() <= device_limit; }
};

class Plan {
 public:
  // A model folder, or a config.json. Code::limit: the model reads no context as long as the request. A device that is
  // named and cannot be used is an error with its reason; what does not fit is none.
  static Result<std::shared_ptr<const Plan>> of_path(const std::string& path, const PlanRequest& request,
                                                     const Machine& machine);
  static Result<std::shared_ptr<const Plan>> of(const std::string& name,
                                                std::shared_ptr<const ModelConfig> config,
                                                const TensorListing& listing, const PlanRequest& request,
                                                const Machine& machine);

  const ModelConfig& config() const { return *config_; }
  const WeightSurvey& weights() const { return *weights_; }
  const std::vector<OperatorCover>& operators() const { return operators_; }
  const Placement& placement() const { return placement_; }
  // What a load by this plan runs with.
  EngineOptions engine_options() const;
  // Whether anything is missing that a load or a step would need.
  bool is_complete() const;

  const std::string& json() const { return json_; }
  std::string text() const;  // the same for people

 private:
  Plan() = default;
  static Result<std::shared_ptr<const Plan>> make(const std::string& name,
                                                  std::shared_ptr<const ModelConfig> config,
                                                  const TensorListing& listing,
                                                  std::vector<std::string> remarks,
                                                  const PlanRequest& request, const Machine& machine);
  Status place(const PlanRequest& request, const TensorListing& listing);
  Status place_on_gpu(const DeviceInfo& device, const PlanRequest& request, const Checkpoint& headers);
  Status place_on_host(const PlanRequest& request);
  uint64_t host_limit(const PlanRequest& request) const;
  Json describe() const;

  std::string name_;
  std::shared_ptr<const ModelConfig> config_;
  std::unique_ptr<const WeightSurvey> weights_;
  std::vector<std::string> files_, missing_files_, remarks_;
  std::vector<OperatorCover> operators_;
  Machine machine_;
  StateLayout state_;
  uint64_t step_bytes_ = 0;
  Placement placement_;
  std::string json_;
};

}  // namespace dsa
