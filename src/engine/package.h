// engine/package.h: a model folder, opened: config, headers, tokenizer, chat format, what generation should
// look like.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/runtime.h"
#include "engine/sampler.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace dsa {

class Package {
 public:
  // Reads everything but the weights. Typed errors, whatever lies in the folder.
  static Result<std::shared_ptr<const Package>> open(std::shared_ptr<Runtime> runtime,
                                                     const std::string& folder);

  // Loads on the calling thread.
  Result<std::shared_ptr<Engine>> load(const EngineOptions& options, const LoadProgress& progress) const;

  // What loading would cost on this machine as it is now.
  Result<std::shared_ptr<const Plan>> plan(const PlanRequest& request) const;

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const std::string& name() const { return name_; }
  const std::string& content_id() const { return content_id_; }
  const ModelConfig& config() const { return *config_; }
  uint64_t weight_bytes() const { return checkpoint_->total_bytes(); }
  uint64_t expert_bytes() const { return expert_bytes_; }
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  const Sampling& sampling() const { return sampling_; }
  bool thinking() const { return thinking_; }
  bool has_chat() const { return format_ != nullptr; }
  bool has_tools() const { return has_chat() && format_->has_tools(); }
  bool has_images() const { return config_->vision.layers > 0 && has_chat() && format_->image_token() >= 0; }
  uint64_t kv_bytes_per_token() const;
  uint64_t state_bytes() const;  // of a mark
  // One scalar of config.json; null if there is none.
  const std::string* meta(const std::string& key) const;

 private:
  Package() = default;

  Status read_generation_config(const std::string& path);
  Status read_tokenizer_config(const std::string& path);

  std::shared_ptr<Runtime> runtime_;
  std::string name_, content_id_;
  std::shared_ptr<const ModelConfig> config_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatFormat> format_;
  Status why_no_format_;
  std::vector<TokenId> end_tokens_;  // of config.json, generation_config.json and the chat format
  Sampling sampling_;                // of generation_config.json; greedy without one
  bool thinking_ = true;
  uint64_t expert_bytes_ = 0;
  std::unordered_map<std::string, std::string> meta_;
};

}  // namespace dsa
