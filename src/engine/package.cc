#include "engine/package.h"

#include <algorithm>
#include <cstdio>

#include "backend/signals.h"

namespace dsa {
namespace {

uint64_t fnv1a(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

void collect_meta(const Json& object, const std::string& prefix, int depth,
                  std::unordered_map<std::string, std::string>& out) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && depth < 4)
      collect_meta(value, prefix + key + ".", depth + 1, out);
    else if (value.is_string())
      out.emplace(prefix + key, value.get_ref<const std::string&>());
    else if (value.is_number() || value.is_boolean())
      out.emplace(prefix + key, value.dump());
  }
}

// A number or a list of numbers.
Status collect_tokens(const JsonFields& fields, const char* key, int vocab, std::vector<TokenId>& out) {
  if (!fields.has(key)) return Status::ok();
  std::vector<int64_t> ids;
  if (fields.json().find(key)->is_array()) {
    DSA_ASSIGN(ids, fields.integers(key, 0, INT32_MAX));
  } else {
    DSA_ASSIGN(const int64_t id, fields.integer(key, 0, INT32_MAX));
    ids.push_back(id);
  }
  for (const int64_t id : ids) {
    if (id >= vocab)
      return error(Code::model, fields.where(), ": '", key, "' names token ", id, ", the vocabulary has ",
                   vocab);
    out.push_back(TokenId(id));
  }
  return Status::ok();
}

// chat_template.jinja, or the template in tokenizer_config.json, the default one where it names several; empty if the
// package has none.
Result<std::string> read_chat_template(const std::string& folder) {
  constexpr size_t kMaxBytes = size_t(1) << 20;
  if (const std::string path = join_path(folder, "chat_template.jinja"); path_exists(path)) {
    DSA_ASSIGN(const std::vector<uint8_t> bytes, read_file(path, kMaxBytes));
    return std::string(bytes.begin(), bytes.end());
  }
  const std::string path = join_path(folder, "tokenizer_config.json");
  if (!path_exists(path)) return std::string();
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json json, read_json_file(path, limits));
  const JsonRelease release(json);
  const auto found = json.is_object() ? json.find("chat_template") : json.end();
  if (!json.is_object() || found == json.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())
    for (const Json& named : *found)
      if (named.is_object() && named.value("name", Json()) == "default" &&
          named.value("template", Json()).is_string())
        return named["template"].get<std::string>();
  return error(Code::model, path, ": 'chat_template' is neither a text nor a list with a default one");
}

std::string content_id_of(const std::string& config_text, const Checkpoint& checkpoint) {
  std::vector<std::string> lines;
  lines.reserve(checkpoint.num_tensors());
  checkpoint.for_each([&](std::string_view name, const StoredTensor& tensor) {
    std::string line = concat(name, " ", dtype_name(tensor.dtype), " ", tensor.bytes);
    for (const int64_t dim : tensor.shape) line += concat(" ", dim);
    lines.push_back(std::move(line));
  });
  std::sort(lines.begin(), lines.end());
  uint64_t hash = fnv1a(config_text, 0xcbf29ce484222325u);
  for (const std::string& line : lines) hash = fnv1a(line, hash);
  char text[32];
  std::snprintf(text, sizeof(text), "headers:%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string last_component(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder.substr(folder.find_last_of('/') + 1);
}

}  // namespace

Result<std::shared_ptr<const Package>> Package::open(std::shared_ptr<Runtime> runtime,
                                                     const std::string& folder) {
  if (folder.empty() || folder.find('\0') != std::string::npos)
    return error(Code::argument, "the path of a package is empty or contains a NUL").with_fix(Fix::input);
  std::shared_ptr<Package> package(new Package);
  package->runtime_ = std::move(runtime);
  package->name_ = last_component(folder);

  const std::string config_path = join_path(folder, "config.json");
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json config, read_json_file(config_path, limits));
  const JsonRelease release(config);
  DSA_ASSIGN(package->config_, parse_model_config(config, config_path, folder));
  if (config.is_object()) collect_meta(config, "", 0, package->meta_);
  DSA_ASSIGN(package->checkpoint_, Checkpoint::open(folder));
  package->content_id_ = content_id_of(config.dump(), *package->checkpoint_);
  package->checkpoint_->for_each([&](std::string_view name, const StoredTensor& tensor) {
    if (name.find(".experts.") != std::string_view::npos) package->expert_bytes_ += tensor.bytes;
  });

  const int vocab = package->config_->vocab;
  auto tokenizer = Tokenizer::load(folder);
  if (tokenizer.is_ok()) {
    package->tokenizer_ = std::move(tokenizer).value();
    if (package->tokenizer_->vocab_size() > vocab)
      return error(Code::model, folder, ": the tokenizer has ", package->tokenizer_->vocab_size(),
                   " tokens, the vocabulary of config.json ", vocab);
    DSA_ASSIGN(const std::string chat_template, read_chat_template(folder));
    auto format = ChatFormat::create(package->config_->family, package->tokenizer_, chat_template);
    if (format.is_ok())
      package->format_ = std::move(format).value();
    else if (format.status().code() == Code::unsupported)
      package->why_no_format_ = format.status();
    else
      return format.status();
  } else if (tokenizer.status().code() != Code::not_found) {
    return tokenizer.status();
  }

  package->end_tokens_ = package->config_->eos_tokens;
  DSA_TRY(package->read_generation_config(join_path(folder, "generation_config.json")));
  DSA_TRY(package->read_tokenizer_config(join_path(folder, "tokenizer_config.json")));
  if (package->format_)
    for (const TokenId id : package->format_->stop_tokens()) package->end_tokens_.push_back(id);
  std::sort(package->end_tokens_.begin(), package->end_tokens_.end());
  package->end_tokens_.erase(std::unique(package->end_tokens_.begin(), package->end_tokens_.end()),
                             package->end_tokens_.end());
  for (const TokenId id : package->end_tokens_)
    if (id < 0 || id >= vocab)
      return error(Code::model, folder, ": end token ", id, ", the vocabulary has ", vocab);

  package->runtime_->log(LogLevel::info, "package", "opened ", folder, ": ", package->config_->family, ", ",
                         package->checkpoint_->num_tensors(), " tensors");
  return std::shared_ptr<const Package>(std::move(package));
}

Status Package::read_generation_config(const std::string& path) {
  if (!path_exists(path)) return Status::ok();
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json json, read_json_file(path, limits));
  const JsonRelease release(json);
  if (!json.is_object()) return error(Code::model, path, ": expected an object");
  const JsonFields fields(json, path);
  DSA_TRY(collect_tokens(fields, "eos_token_id", config_->vocab, end_tokens_));

  DSA_ASSIGN(const bool sample, fields.boolean_or("do_sample", true));
  const bool advises = fields.has("do_sample") || fields.has("temperature") || fields.has("top_p") ||
                       fields.has("top_k") || fields.has("min_p");
  DSA_ASSIGN(const double temperature, fields.number_or("temperature", advises ? 1 : 0));
  DSA_ASSIGN(const double top_p, fields.number_or("top_p", 1));
  DSA_ASSIGN(const double min_p, fields.number_or("min_p", 0));
  DSA_ASSIGN(const double repeat_penalty, fields.number_or("repetition_penalty", 1));
  DSA_ASSIGN(const int64_t top_k, fields.integer_or("top_k", 0, 0, INT32_MAX));
  sampling_.temperature = sample ? float(temperature) : 0;
  sampling_.top_p = float(top_p);
  sampling_.min_p = float(min_p);
  sampling_.top_k = uint32_t(top_k);
  sampling_.repeat_penalty = float(repeat_penalty);
  const Status status = check_sampling(sampling_, config_->vocab);
  if (!status.is_ok()) return error(Code::model, path, ": ", status.message());
  return Status::ok();
}

Status Package::read_tokenizer_config(const std::string& path) {
  if (!path_exists(path)) return Status::ok();
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json json, read_json_file(path, limits));
  const JsonRelease release(json);
  if (!json.is_object()) return error(Code::model, path, ": expected an object");
  const JsonFields fields(json, path);
  DSA_ASSIGN(thinking_, fields.boolean_or("thinking", true));
  return Status::ok();
}

Result<std::shared_ptr<Engine>> Package::load(const EngineOptions& options,
                                              const LoadProgress& progress) const {
  EngineParts parts;
  parts.runtime = runtime_;
  if (!options.device.empty()) {
    const SignalsBlocked blocked;
    DSA_ASSIGN(parts.backend, create_gpu_backend(options.device, runtime_->module_dir()));
  } else {
    const SignalsBlocked blocked;  // the backend starts threads, and they inherit it
    DSA_ASSIGN(parts.backend, create_cpu_backend(runtime_->max_threads(),
                                                 [runtime = runtime_](const char* thread, bool entering) {
                                                   runtime->call_on_thread(thread, entering);
                                                 }));
  }
  ModelOptions model_options;
  model_options.cache_format = options.cache_format;
  if (options.step_tokens > 0) model_options.max_step_tokens = options.step_tokens;
  DSA_ASSIGN(parts.model, load_language_model(config_, checkpoint_, *parts.backend, model_options, progress));
  parts.tokenizer = tokenizer_;
  parts.format = format_;
  parts.why_no_format = why_no_format_;
  parts.end_tokens = end_tokens_;
  parts.sampling = sampling_;
  parts.thinking = thinking_;
  parts.max_context = config_->max_context;
  parts.expert_bytes = expert_bytes_;
  DSA_ASSIGN(std::shared_ptr<Engine> engine, Engine::create(std::move(parts), options));
  runtime_->log(LogLevel::info, "model", "loaded ", name_);
  return engine;
}

Result<std::shared_ptr<const Plan>> Package::plan(const PlanRequest& request) const {
  std::vector<DeviceInfo> gpus = runtime_->find_devices();
  std::erase_if(gpus, [](const DeviceInfo& device) { return device.id == kCpuDevice; });
  return Plan::of(name_, config_, TensorListing::of(checkpoint_), request, Machine::with(std::move(gpus)));
}

uint64_t Package::kv_bytes_per_token() const {
  return state_layout_of(*config_, CacheFormat::f32).bytes_per_token();
}

uint64_t Package::state_bytes() const {
  return state_layout_of(*config_, CacheFormat::f32).fixed_floats() * sizeof(float);
}

const std::string* Package::meta(const std::string& key) const {
  const auto at = meta_.find(key);
  return at == meta_.end() ? nullptr : &at->second;
}

}  // namespace dsa
