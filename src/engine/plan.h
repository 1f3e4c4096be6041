// engine/plan.h: what loading a package would cost, and where everything would go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/package.h"

namespace dsa {

struct PlanRequest {
  std::vector<std::string> devices;  // empty: the first GPU on which it fits, else the CPU
  int64_t context_tokens = 0;        // 0: the largest that fits
  int64_t sessions = 1;              // at the same time
  uint64_t device_bytes = 0;         // at most; 0: what is free
  uint64_t leave_device_bytes = 0;   // of what is free
};

class Plan {
 public:
  // Code::argument, no_device or limit if the request makes no sense; a plan that does not fit is not an error.
  static Result<std::shared_ptr<const Plan>> create(std::shared_ptr<const Package> package,
                                                    const PlanRequest& request);

  const std::shared_ptr<const Package>& package() const { return package_; }
  const std::string& device() const { return device_; }
  bool is_cpu() const { return device_ == kCpu; }
  bool feasible() const { return why_not_.is_ok(); }
  const Status& why_not() const { return why_not_; }
  int context_tokens() const { return context_tokens_; }
  int sessions() const { return sessions_; }
  uint64_t device_bytes() const;
  uint64_t host_bytes() const { return host_bytes_; }
  // What a load by this plan runs with.
  EngineOptions engine_options() const;
  // Bytes by purpose, and what would help.
  const std::string& explanation() const { return explanation_; }

  static constexpr const char* kCpu = "cpu:0";

 private:
  Plan() = default;

  Status place_on_gpu(const DeviceInfo& device, const PlanRequest& request);
  Status place_on_cpu(const PlanRequest& request);
  void explain();

  std::shared_ptr<const Package> package_;
  std::string device_;
  Status why_not_;
  std::string help_;
  int context_tokens_ = 0, sessions_ = 1;
  std::vector<std::pair<const char*, uint64_t>> device_parts_;
  uint64_t available_ = 0, host_bytes_ = 0;
  std::string explanation_;
};

}  // namespace dsa
