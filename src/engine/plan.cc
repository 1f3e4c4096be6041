#include "engine/plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "engine/engine.h"
#include "engine/runtime.h"

namespace dsa {
namespace {

// Prompt tokens that go through a GPU at a time: experts have many rows, and their weights are read less often.
constexpr int kGpuStepTokens = 2048;
// The present one, the next one, and another while a run may still be taken back.
constexpr int64_t kGpuStatesPerSession = 3;

std::vector<OperatorCover> cover_operators(const ModelConfig& config, const WeightSurvey& weights,
                                           const std::vector<BackendKernels>& backends, bool fp8_workspace) {
  std::vector<OperatorCover> all;
  for (OperatorNeed& need : operators_of(config, weights, fp8_workspace))
    all.push_back({std::move(need), {}});
  for (const BackendKernels& backend : backends) {
    std::map<std::string_view, std::string> variants;
    for (const KernelCover& kernel : kernel_cover(backend.variants)) variants[kernel.op] = kernel.variant;
    for (OperatorCover& op : all) {
      KernelSource source{backend.name, variants[op.need.name], backend.why_not};
      if (source.variant.empty() && source.why_missing.empty())
        source.why_missing = concat("backend '", backend.name, "' has no kernel for it");
      op.kernels.push_back(std::move(source));
    }
  }
  return all;
}

// More than any machine has: products end there rather than wrap around.
constexpr uint64_t kEndless = uint64_t(1) << 60;

uint64_t times(uint64_t a, uint64_t b) { return b > 0 && a > kEndless / b ? kEndless : a * b; }

// "1,560,860,324,864"
std::string grouped(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

// "1,560,860,324,864 bytes (1561 GB)"
std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return concat(bytes, " bytes");
  double value = double(bytes);
  int unit = -1;
  while (value >= 999.5 && unit < 3) value /= 1000, ++unit;
  char rounded[32];
  std::snprintf(rounded, sizeof(rounded), value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value);
  return concat(grouped(bytes), " bytes (", rounded, " ", kUnits[unit], ")");
}

const char* attention_name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kda: return "kda";
    case AttentionKind::latent: return "latent";
    case AttentionKind::grouped: return "grouped";
  }
  return "";
}

const char* indexer_name(IndexerKind kind) {
  switch (kind) {
    case IndexerKind::none: return "none";
    case IndexerKind::full: return "full";
    case IndexerKind::shared: return "shared";
  }
  return "";
}

const char* format_name(TensorUse use, DType dtype) {
  return use == TensorUse::mxfp4_blocks ? "MXFP4" : dtype_name(dtype);
}

Json patterns_json(const std::map<std::string, StrangerPattern>& patterns) {
  Json list = Json::array();
  for (const auto& [name, p] : patterns)
    list.push_back({{"pattern", name}, {"count", p.count}, {"bytes", p.bytes}, {"example", p.example}});
  return list;
}

uint64_t total_of(const std::map<std::string, StrangerPattern>& patterns) {
  uint64_t n = 0;
  for (const auto& [name, p] : patterns) n += p.count;
  return n;
}

Json tensors_json(const WeightSurvey& weights) {
  Json patterns = Json::array();
  for (const auto& [key, p] : weights.patterns()) {
    Json entry = {
        {"pattern", key.first}, {"part", part_name(p.part)}, {"format", format_name(p.use, key.second)},
        {"shape", p.shape},     {"expected", p.expected},    {"found", p.found},
        {"missing", p.missing}, {"refused", p.refused},      {"parameters", p.parameters},
        {"bytes", p.bytes}};
    if (!p.problem.empty()) entry["problem"] = p.problem;
    patterns.push_back(std::move(entry));
  }
  return {{"expected", weights.expected()},
          {"found", weights.found()},
          {"missing", weights.missing()},
          {"refused", weights.refused()},
          {"unexpected", total_of(weights.unexpected())},
          {"unused", total_of(weights.unused())},
          {"patterns", std::move(patterns)},
          {"unexpected_patterns", patterns_json(weights.unexpected())},
          {"unused_patterns", patterns_json(weights.unused())}};
}

// What happens to the values of each kind of tensor, and of what a session keeps.
Json precision_json(const ModelConfig& c, const WeightSurvey& weights, const Placement& placement) {
  std::map<std::tuple<WeightPart, std::string, std::string, std::string>, uint64_t> rows;
  const Route route = ModelOptions().route;
  for (const auto& [key, p] : weights.patterns()) {
    const char* format = format_name(p.use, key.second);
    if (!accepts(p.use, key.second)) {
      rows[{p.part, format, "refused", concat("expected ", accepted_formats(p.use))}] += p.expected;
      continue;
    }
    if (p.use == TensorUse::mxfp4_scales || p.use == TensorUse::tile_scales) continue;
    const PrecisionPath path = precision_of(p.part, p.use, key.second, route, placement.products);
    rows[{p.part, format, path.precision == Precision::exact ? "exact" : "rounded", path.how}] += p.expected;
  }
  Json list = Json::array();
  for (const auto& [row, tensors] : rows)
    list.push_back({{"what", part_name(std::get<0>(row))},
                    {"format", std::get<1>(row)},
                    {"path", std::get<2>(row)},
                    {"how", std::get<3>(row)},
                    {"tensors", tensors}});
  const StateLayout layout = state_layout_of(c, placement.cache_format);
  const auto add_state = [&](const char* what, CacheFormat kept, const char* path, const char* how) {
    const char* format = kept == CacheFormat::fp8 ? "FP8" : kept == CacheFormat::bf16 ? "BF16" : "F32";
    list.push_back({{"what", what}, {"format", format}, {"path", path}, {"how", how}, {"tensors", 0}});
  };
  const auto add_cache = [&](const char* what, CacheFormat kept) {
    switch (kept) {
      case CacheFormat::f32: return add_state(what, kept, "exact", "kept as computed");
      case CacheFormat::bf16: return add_state(what, kept, "rounded", "to bf16 when written");
      case CacheFormat::fp8:
        return add_state(what, kept, "rounded",
                         "to E4M3 with a scale for 128 values when written, rotary values to bf16");
    }
  };
  if (layout.latent_layers > 0) add_cache("latents", layout.format);
  if (layout.kv_layers > 0) add_cache("keys_and_values", layout.rows_format());
  if (layout.index_layers > 0 && c.indexer.fp8_keys)  // bf16 holds them as they are
    add_state("index_keys", layout.rows_format(), "rounded",
              "to E4M3 behind a Hadamard matrix, as the model defines them");
  else if (layout.index_layers > 0)
    add_cache("index_keys", layout.rows_format());
  if (layout.kda_layers > 0) add_state("recurrent_state", CacheFormat::f32, "exact", "kept as computed");
  return list;
}

Result<std::shared_ptr<const ModelConfig>> read_config(const std::string& path, const std::string& folder,
                                                       std::vector<std::string>& remarks) {
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json json, read_json_file(path, limits));
  const JsonRelease release(json);
  const std::string preprocessor = join_path(folder, "preprocessor_config.json");
  const bool pictures = json.is_object() && json.contains("vision_config");
  if (!pictures || path_exists(preprocessor)) return parse_model_config(json, path, folder);
  remarks.push_back(concat(preprocessor, " is missing: a load may need it to bring pictures to size"));
  return parse_model_config(json, path, "");
}

std::string last_component(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

HostMemory HostMemory::now() { return {Runtime::total_memory(), Runtime::free_memory()}; }

Machine Machine::with(std::vector<DeviceInfo> gpus) {
  std::vector<BackendKernels> backends = backends_with(gpus);
  return {HostMemory::now(), std::move(backends), std::move(gpus)};
}

uint64_t Placement::device_bytes() const {
  uint64_t total = 0;
  for (const auto& [purpose, bytes] : device_parts) total += bytes;
  return total;
}

EngineOptions Plan::engine_options() const {
  EngineOptions options;
  options.default_context = int(placement_.context);
  options.pool_sessions = int(placement_.sessions);
  options.cache_format = placement_.cache_format;
  if (placement_.on_gpu()) {
    options.device = placement_.device;
    options.step_tokens = kGpuStepTokens;
    options.pool_states = int(placement_.states_per_session * placement_.sessions);
  }
  return options;
}

bool OperatorCover::is_covered() const {
  return std::any_of(kernels.begin(), kernels.end(), [](const auto& k) { return k.why_missing.empty(); });
}

bool Plan::is_complete() const {
  return weights_->missing() == 0 && weights_->refused() == 0 && missing_files_.empty() &&
         std::all_of(operators_.begin(), operators_.end(), [](const auto& op) { return op.is_covered(); });
}

Result<std::shared_ptr<const Plan>> Plan::of_path(const std::string& path, const PlanRequest& request,
                                                  const Machine& machine) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return error(Code::argument, "the path of a model is empty or contains a NUL").with_fix(Fix::input);
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::string folder = is_folder ? path : path.substr(0, path.find_last_of('/') + 1) + ".";
  std::vector<std::string> remarks;
  DSA_ASSIGN(auto config, read_config(is_folder ? join_path(path, "config.json") : path, folder, remarks));
  TensorListing listing;
  if (is_folder) {
    DSA_ASSIGN(listing, Checkpoint::list(path));
  }
  return make(last_component(path), std::move(config), listing, std::move(remarks), request, machine);
}

Result<std::shared_ptr<const Plan>> Plan::of(const std::string& name,
                                             std::shared_ptr<const ModelConfig> config,
                                             const TensorListing& listing, const PlanRequest& request,
                                             const Machine& machine) {
  return make(name, std::move(config), listing, {}, request, machine);
}

Result<std::shared_ptr<const Plan>> Plan::make(const std::string& name,
                                               std::shared_ptr<const ModelConfig> config,
                                               const TensorListing& listing, std::vector<std::string> remarks,
                                               const PlanRequest& request, const Machine& machine) {
  std::shared_ptr<Plan> plan(new Plan);
  plan->name_ = name;
  plan->config_ = std::move(config);
  plan->files_ = listing.files;
  plan->missing_files_ = listing.missing_files;
  plan->remarks_ = std::move(remarks);
  plan->machine_ = machine;
  DSA_ASSIGN(WeightSurvey weights, WeightSurvey::of(*plan->config_, listing));
  plan->weights_ = std::make_unique<const WeightSurvey>(std::move(weights));
  plan->step_bytes_ = step_memory_bytes(*plan->config_, ModelOptions());
  DSA_TRY(plan->place(request, listing));
  plan->operators_ = cover_operators(*plan->config_, *plan->weights_, machine.backends,
                                     plan->placement_.products == Products::gpu_fp8);
  Json json = plan->describe();
  const JsonRelease release(json);
  plan->json_ = json.dump(1, ' ', false, Json::error_handler_t::replace);
  return std::shared_ptr<const Plan>(std::move(plan));
}

Status Plan::place(const PlanRequest& request, const TensorListing& listing) {
  const int64_t most = config_->max_context;
  if (request.context > most)
    return error(Code::limit, "a context of ", request.context, " tokens, this model has at most ", most)
        .with_fix(Fix::shorten)
        .with_room(uint64_t(request.context), uint64_t(most));
  if (request.cache_format == CacheFormat::fp8 &&
      state_layout_of(*config_, CacheFormat::fp8).latent_layers == 0)
    return error(Code::unsupported, "a cache in FP8 is for latents, and ", name_, " keeps none")
        .with_fix(Fix::input);
  if (request.devices.size() > 1)
    return error(Code::unsupported, request.devices.size(), " devices, this version uses one");
  const std::string wanted = request.devices.empty() ? "" : request.devices.front();
  if (wanted == kCpuDevice || wanted == "cpu") return place_on_host(request);

  const bool measurable = listing.headers && listing.missing_files.empty() && weights_->missing() == 0 &&
                          weights_->refused() == 0;
  for (size_t i = 0; i < machine_.gpus.size(); ++i) {
    const DeviceInfo& gpu = machine_.gpus[i];
    const bool is_last = i + 1 == machine_.gpus.size();
    if (!wanted.empty() && wanted != "cuda" && wanted != gpu.id && wanted != concat("cuda:", i)) continue;
    if (!gpu.why_not.is_ok()) {
      if (wanted.empty() || (wanted == "cuda" && !is_last)) continue;
      return gpu.why_not;
    }
    if (!measurable) {
      if (!wanted.empty())
        return error(Code::model, name_, " is not complete: a GPU is planned by the headers of all tensors");
      remarks_.push_back("no GPU is planned: that takes the headers of all tensors");
      break;
    }
    DSA_TRY(place_on_gpu(gpu, request, *listing.headers));
    if (!wanted.empty() || placement_.feasible) return Status::ok();
  }
  if (!wanted.empty())
    return error(Code::no_device, "there is no device '", wanted, "' beside '", kCpuDevice, "' and ",
                 machine_.gpus.size(), " of CUDA")
        .with_fix(Fix::input);
  return place_on_host(request);
}

uint64_t Plan::host_limit(const PlanRequest& request) const {
  const uint64_t limit = machine_.memory.free - std::min(machine_.memory.free, request.leave_host_bytes);
  return request.host_bytes > 0 ? std::min(limit, request.host_bytes) : limit;
}

// All weights, the pages and the states of all sessions lie on the device.
Status Plan::place_on_gpu(const DeviceInfo& device, const PlanRequest& request, const Checkpoint& headers) {
  ModelOptions options;
  options.max_step_tokens = kGpuStepTokens;
  options.fp8_rows = device.fp8_rows;
  options.expand_rows = device.expand_rows;
  options.cache_format = request.cache_format.value_or(CacheFormat::bf16);
  DSA_ASSIGN(const ModelSize size, measure_model(*config_, headers, options));
  const int64_t most = config_->max_context;
  placement_ = Placement();
  Placement& p = placement_;
  p.device = device.id;
  p.cache_format = options.cache_format;
  state_ = state_layout_of(*config_, p.cache_format);
  p.sessions = request.sessions;
  p.products = size.fp8_workspace > 0 ? Products::gpu_fp8 : Products::gpu;
  p.states_per_session = kGpuStatesPerSession;
  p.limit = host_limit(request);
  p.host_bytes = size.host;
  p.device_limit = device.free_bytes - std::min(device.free_bytes, request.leave_device_bytes);
  if (request.device_bytes > 0) p.device_limit = std::min(p.device_limit, request.device_bytes);

  const uint64_t sessions = uint64_t(p.sessions), states = times(size.state, sessions * kGpuStatesPerSession);
  const uint64_t fixed = size.weights + size.step + size.fp8_workspace + device.backend_bytes + states;
  const uint64_t page = std::max<uint64_t>(times(size.page, sessions), 1);  // one of each session
  const uint64_t fitting = fixed < p.device_limit ? (p.device_limit - fixed) / page : 0;
  p.context_resident = int64_t(std::min(fitting, uint64_t(most) / kPageSize + 1)) * kPageSize;
  p.context_resident = std::min(p.context_resident, most);
  p.context = request.context > 0 ? request.context : std::max<int64_t>(p.context_resident, 1);
  p.device_parts = {
      {"weights", size.weights},
      {"step", size.step},
      {"fp8_workspace", size.fp8_workspace},
      {"operators", device.backend_bytes},
      {"pages", times(times(size.page, sessions), uint64_t((p.context + kPageSize - 1) / kPageSize))},
      {"states", states}};
  p.feasible = p.fits_device() && p.host_bytes <= p.limit;
  if (p.feasible) {
    p.experts_on_device = 1;
    return Status::ok();
  }
  p.missing_bytes = p.fits_device() ? p.host_bytes - p.limit : p.device_bytes() - p.device_limit;
  if (!p.fits_device() && p.context_resident > 0)
    p.advice.push_back(concat("context ", p.context_resident, " instead of ", p.context));
  p.advice.push_back(
      concat(bytes_text(p.missing_bytes), " more of ", p.fits_device() ? "host" : "device", " memory"));
  return Status::ok();
}

// Weights that every token reads, the state and the cache come first; experts take what is left, and the system reads
// the others from the disk.
Status Plan::place_on_host(const PlanRequest& request) {
  const int64_t most = config_->max_context;
  placement_ = Placement();
  Placement& p = placement_;
  p.sessions = request.sessions;
  p.limit = host_limit(request);
  p.cache_format = request.cache_format.value_or(CacheFormat::f32);
  state_ = state_layout_of(*config_, p.cache_format);

  const uint64_t experts = weights_->expert_bytes(), page = state_.page_bytes();
  const uint64_t always = weights_->bytes() - experts + weights_->converted_bytes() + step_bytes_;
  const uint64_t session = uint64_t(p.states_per_session) * state_.fixed_floats() * sizeof(float);
  const auto needed = [&](int64_t context, int64_t sessions) {
    const uint64_t pages = uint64_t((context + kPageSize - 1) / kPageSize);
    return always + times(uint64_t(sessions), session + times(pages, page));
  };
  const auto longest = [&](uint64_t taken, int64_t sessions) -> int64_t {
    const uint64_t begin = taken + needed(0, sessions);
    if (begin > p.limit) return 0;
    if (page == 0) return most;
    const uint64_t pages = (p.limit - begin) / times(uint64_t(sessions), page);
    return pages >= uint64_t(most) / kPageSize + 1 ? most : std::min(most, int64_t(pages) * kPageSize);
  };
  p.context_resident = longest(experts, p.sessions);
  p.context_from_disk = longest(0, p.sessions);

  const int64_t usual = std::min<int64_t>(EngineOptions().default_context, most);
  p.context = request.context;
  if (p.context == 0)
    p.context = p.context_resident >= usual || p.context_from_disk == 0
                    ? p.context_resident
                    : std::max(p.context_resident, std::min(p.context_from_disk, usual));
  p.host_bytes = needed(std::max<int64_t>(p.context, 1), p.sessions);
  p.feasible = p.context > 0 && p.host_bytes <= p.limit;
  if (!p.feasible) {
    p.missing_bytes = p.host_bytes - std::min(p.host_bytes, p.limit);
    if (p.context_from_disk > 0)
      p.advice.push_back(concat("context ", p.context_from_disk, " instead of ", p.context, ": ",
                                bytes_text(p.host_bytes - needed(p.context_from_disk, p.sessions)), " less"));
    else if (p.sessions > 1 && longest(0, 1) >= std::max<int64_t>(p.context, 1))
      p.advice.push_back(concat("1 session instead of ", p.sessions, ": ",
                                bytes_text(p.host_bytes - needed(std::max<int64_t>(p.context, 1), 1)),
                                " less"));
    p.advice.push_back(concat(bytes_text(p.missing_bytes), " more of host memory"));
    return Status::ok();
  }
  const uint64_t held = std::min(experts, p.limit - p.host_bytes);
  p.host_bytes += held;
  p.experts_on_host = experts == 0 ? 1 : double(held) / double(experts);
  if (held == experts) return Status::ok();
  p.disk_bytes_per_token = (experts - held) / uint64_t(config_->moe.experts) * uint64_t(config_->moe.top_k);
  p.advice.push_back(concat(bytes_text(experts - held), " more of host memory would hold all experts"));
  return Status::ok();
}

Json Plan::describe() const {
  const ModelConfig& c = *config_;
  const WeightSurvey& w = *weights_;
  const Placement& p = placement_;

  Json parameters = {{"total", w.parameters()}, {"active_per_token", w.active_parameters()}};
  for (size_t i = 0; i < kWeightParts; ++i)
    parameters[part_name(WeightPart(i))] = w.part(WeightPart(i)).parameters;

  Json backends = Json::array(), operators = Json::array(), lacking = Json::array();
  for (const BackendKernels& backend : machine_.backends)
    backends.push_back({{"name", backend.name}, {"why_not", backend.why_not}});
  for (const OperatorCover& op : operators_) {
    Json kernels = Json::object();
    for (const KernelSource& kernel : op.kernels) {
      kernels[kernel.backend] = kernel.variant;
      if (!kernel.why_missing.empty())
        lacking.push_back({{"operator", std::string(op.need.name)},
                           {"backend", kernel.backend},
                           {"why", kernel.why_missing}});
    }
    operators.push_back({{"name", std::string(op.need.name)},
                         {"used_by", op.need.used_by},
                         {"kernels", std::move(kernels)},
                         {"covered", op.is_covered()}});
  }

  Json layers = Json::array();
  uint64_t in_layers = 0;
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const LayerTotals& bytes = w.layers()[l];
    const uint64_t held = uint64_t(double(bytes.expert_bytes) * p.experts_on_host);
    in_layers += bytes.fixed_bytes + bytes.expert_bytes;
    layers.push_back({{"layer", l},
                      {"attention", attention_name(c.layers[l].attention)},
                      {"indexer", indexer_name(c.layers[l].indexer)},
                      {"window", c.layers[l].window},
                      {"experts", c.layers[l].moe},
                      {"fixed_bytes", bytes.fixed_bytes},
                      {"expert_bytes", bytes.expert_bytes},
                      {"device_bytes", p.on_gpu() ? bytes.fixed_bytes + bytes.expert_bytes : 0},
                      {"host_bytes", p.on_gpu() ? 0 : bytes.fixed_bytes + held},
                      {"disk_bytes", p.on_gpu() ? 0 : bytes.expert_bytes - held}});
  }

  Json device_parts = Json::object();
  for (const auto& [purpose, bytes] : p.device_parts) device_parts[purpose] = bytes;

  Json tensors = tensors_json(w);
  tensors["source"] = w.from_config_alone()                    ? "config"
                      : missing_files_.size() == files_.size() ? "index"
                      : missing_files_.empty()                 ? "files"
                                                               : "index and some files";
  tensors["files"] = files_.size();
  tensors["missing_files"] = missing_files_;
  return {{"name", name_},
          {"family", c.family},
          {"architecture", c.architecture},
          {"vocabulary", c.vocab},
          {"hidden", c.hidden},
          {"max_context", c.max_context},
          {"reads_pictures", c.vision.layers > 0},
          {"parameters", std::move(parameters)},
          {"backends", std::move(backends)},
          {"operators", std::move(operators)},
          {"missing_operators", std::move(lacking)},
          {"tensors", std::move(tensors)},
          {"precision", precision_json(c, w, p)},
          {"bytes",
           {{"weights", w.bytes()},
            {"experts", w.expert_bytes()},
            {"outside_layers", w.bytes() - in_layers},
            {"converted", w.converted_bytes()},
            {"step", step_bytes_}}},
          {"layers", std::move(layers)},
          {"state",
           {{"kv_bytes_per_token", state_.bytes_per_token()},
            {"bytes_per_session", state_.fixed_floats() * sizeof(float)},
            {"copies_per_session", p.states_per_session},
            {"tokens_per_page", kPageSize}}},
          {"machine", {{"host_bytes", machine_.memory.total}, {"free_host_bytes", machine_.memory.free}}},
          {"plan",
           {{"device", p.device},
            {"feasible", p.feasible},
            {"context_tokens", p.context},
            {"sessions", p.sessions},
            {"limit_bytes", p.limit},
            {"device_limit_bytes", p.device_limit},
            {"device_bytes", p.device_bytes()},
            {"device_parts", std::move(device_parts)},
            {"host_bytes", p.host_bytes},
            {"missing_bytes", p.missing_bytes},
            {"disk_bytes_per_token", p.disk_bytes_per_token},
            {"experts_on_device", p.experts_on_device},
            {"experts_on_host", p.experts_on_host},
            {"context_with_all_weights_in_memory", p.context_resident},
            {"context_with_experts_on_disk", p.context_from_disk},
            {"advice", p.advice}}},
          {"remarks", remarks_},
          {"complete", is_complete()}};
}

namespace {

// Columns of text: as wide as their widest cell, two blanks between them.
class Table {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = " ";
      for (size_t i = 0; i < row.size(); ++i)
        line += ' ' + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string text_of(const Json& value) { return value.get<std::string>(); }
std::string count_text(const Json& value) { return grouped(value.get<uint64_t>()); }
std::string size_text(const Json& value) { return bytes_text(value.get<uint64_t>()); }

std::string joined(const Json& list) {
  std::string text;
  for (const Json& item : list) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

std::vector<std::string> layer_row(const Json& l) {
  return {text_of(l["attention"]) + (l["window"] == true ? ", window" : ""), text_of(l["indexer"]),
          size_text(l["device_bytes"]), size_text(l["host_bytes"]), size_text(l["disk_bytes"])};
}

std::string operators_text(const Json& json) {
  Table table;
  std::vector<std::string> head = {"operator"};
  for (const Json& backend : json["backends"]) head.push_back(text_of(backend["name"]));
  head.push_back("used by");
  table.add(std::move(head));
  uint64_t uncovered = 0;
  for (const Json& op : json["operators"]) {
    std::vector<std::string> row = {text_of(op["name"])};
    for (const Json& backend : json["backends"]) {
      const std::string variant = text_of(op["kernels"][text_of(backend["name"])]);
      row.push_back(variant.empty() ? "missing" : variant);
    }
    row.push_back(joined(op["used_by"]));
    table.add(std::move(row));
    if (!op["covered"].get<bool>()) ++uncovered;
  }
  std::string text = concat("operators: ", json["operators"].size(), " needed, ", uncovered, " missing\n");
  std::set<std::string> absent;
  for (const Json& backend : json["backends"])
    if (!text_of(backend["why_not"]).empty()) {
      text += "  " + text_of(backend["name"]) + " cannot run here: " + text_of(backend["why_not"]) + "\n";
      absent.insert(text_of(backend["name"]));
    }
  text += table.text();
  for (const Json& lack : json["missing_operators"])
    if (absent.count(text_of(lack["backend"])) == 0)  // else said above, once for all
      text += "  " + text_of(lack["operator"]) + ": " + text_of(lack["why"]) + "\n";
  return text;
}

std::string tensors_text(const Json& tensors) {
  std::string text = "tensors: " + count_text(tensors["expected"]) + " expected";
  if (tensors["source"] == "config") return text + ", no files to compare with\n";
  for (const char* key : {"found", "missing", "refused", "unexpected", "unused"})
    text += ", " + count_text(tensors[key]) + " " + key;
  text += concat("; from the ", text_of(tensors["source"]), ", ",
                 tensors["files"].get<size_t>() - tensors["missing_files"].size(), " of ",
                 tensors["files"].get<size_t>(), " files\n");
  Table table;
  for (const Json& p : tensors["patterns"])
    if (p.contains("problem"))
      table.add({p["missing"].get<uint64_t>() > 0 ? "missing" : "refused", text_of(p["pattern"]),
                 concat(p["missing"].get<uint64_t>() + p["refused"].get<uint64_t>(), " of ",
                        p["expected"].get<uint64_t>()),
                 text_of(p["problem"])});
  for (const Json& p : tensors["unexpected_patterns"])
    table.add({"unexpected", text_of(p["pattern"]), count_text(p["count"]), text_of(p["example"])});
  for (const Json& p : tensors["unused_patterns"])
    table.add({"unused", text_of(p["pattern"]), count_text(p["count"]), "behind the last layer"});
  return text + table.text();
}

}  // namespace

std::string Plan::text() const {
  Json json = describe();
  const JsonRelease release(json);
  std::string text =
      concat(text_of(json["name"]), ": ", text_of(json["family"]), ", ", text_of(json["architecture"]), ", ",
             json["layers"].size(), " layers of ", json["hidden"].get<int>(), "\n");
  for (const Json& remark : json["remarks"]) text += "  " + text_of(remark) + "\n";

  Table parameters;
  std::vector<std::string> keys = {"total", "active_per_token"};
  for (size_t i = 0; i < kWeightParts; ++i) keys.push_back(part_name(WeightPart(i)));
  for (const std::string& key : keys)
    if (json["parameters"][key] != 0) parameters.add({key, count_text(json["parameters"][key])});
  text += "parameters\n" + parameters.text();
  text += operators_text(json) + tensors_text(json["tensors"]);

  Table precision;
  precision.add({"of", "format", "path", "tensors", ""});
  for (const Json& row : json["precision"])
    precision.add({text_of(row["what"]), text_of(row["format"]), text_of(row["path"]),
                   row["tensors"] == 0 ? "" : count_text(row["tensors"]), text_of(row["how"])});
  text += "precision\n" + precision.text();

  // Layers that are alike share a line.
  std::vector<std::pair<std::vector<std::string>, std::string>> alike;
  size_t run_begin = 0, in_run = 0;
  for (size_t l = 0; l <= json["layers"].size(); ++l) {
    std::vector<std::string> row;
    if (l < json["layers"].size()) row = layer_row(json["layers"][l]);
    if (l > 0 && row == alike[in_run].first) continue;
    if (l > 0) {
      std::string& numbers = alike[in_run].second;
      numbers += (numbers.empty() ? "" : ", ") +
                 (l - run_begin > 1 ? concat(run_begin, "-", l - 1) : std::to_string(run_begin));
    }
    if (l == json["layers"].size()) break;
    run_begin = l;
    const auto at =
        std::find_if(alike.begin(), alike.end(), [&](const auto& kind) { return kind.first == row; });
    in_run = size_t(at - alike.begin());
    if (at == alike.end()) alike.emplace_back(std::move(row), "");
  }
  Table layers;
  layers.add({"attention", "indexer", "device", "host", "disk", "layers"});
  for (auto& [row, numbers] : alike) {
    row.push_back(numbers);
    layers.add(std::move(row));
  }
  text += "bytes of each layer\n" + layers.text();

  Table memory;
  const Json &bytes = json["bytes"], &state = json["state"], &plan = json["plan"];
  memory.add({"weights", size_text(bytes["weights"])});
  memory.add({"of them experts", size_text(bytes["experts"])});
  memory.add({"of them outside the layers", size_text(bytes["outside_layers"])});
  memory.add({"converted at load", size_text(bytes["converted"])});
  memory.add({"for a step", size_text(bytes["step"])});
  memory.add({"cache per token", size_text(state["kv_bytes_per_token"])});
  memory.add({"state per session", size_text(state["bytes_per_session"])});
  memory.add({"memory of this machine", size_text(json["machine"]["host_bytes"])});
  memory.add({"of it free", size_text(json["machine"]["free_host_bytes"])});
  text += "memory\n" + memory.text();

  Table placed;
  placed.add({"context with all weights in memory", count_text(plan["context_with_all_weights_in_memory"])});
  placed.add({"context with experts on the disk", count_text(plan["context_with_experts_on_disk"])});
  placed.add({"context", count_text(plan["context_tokens"])});
  placed.add({"sessions", count_text(plan["sessions"])});
  placed.add({"device", text_of(plan["device"])});
  for (const auto& [purpose, part] : plan["device_parts"].items())
    placed.add({"on the device, " + purpose, size_text(part)});
  placed.add({"memory", size_text(plan["host_bytes"])});
  placed.add({"experts in memory", concat(int(plan["experts_on_host"].get<double>() * 100), " %")});
  placed.add({"from the disk for a token", size_text(plan["disk_bytes_per_token"])});
  text += plan["feasible"] == true ? "plan: fits\n" : "plan: does not fit\n";
  text += placed.text();
  for (const Json& line : plan["advice"]) text += "  " + text_of(line) + "\n";
  return text;
}

}  // namespace dsa
