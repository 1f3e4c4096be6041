#include "model/convert.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "backend/cpu/thread_pool.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "io/output_file.h"
#include "io/safetensors_layout.h"
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"
#include "model/model_config.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dsa {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kJournal = "dsa_convert.journal";
constexpr const char* kReport = "dsa_convert.json";
constexpr int kVersion = 1;  // of the rule and the layout of what is written

constexpr int64_t kRunBlocks = 512;                // blocks that one thread packs at a time
constexpr int64_t kChunkBlocks = 64 * kRunBlocks;  // blocks that are read at a time: 4 MiB of f32
constexpr int64_t kChunkValues = kChunkBlocks * kMxfp4Block;
constexpr size_t kCopyBytes = size_t(4) << 20;
constexpr int64_t kBandBytes = 2 << 20;  // packed columns of stacked experts that are made at a time

// ---- names ----

// "model.layers.3.mlp.experts.7.up_proj" and ".weight".
struct ExpertName {
  std::string_view matrix, part;
};

std::optional<ExpertName> expert_name(std::string_view name, const ExpertNames& names) {
  const bool stacked = names.up == nullptr;
  const std::string block = concat(".", names.block, "experts.");
  const size_t found = name.find(block);
  if (found == name.npos) return std::nullopt;
  size_t at = found + block.size();
  if (!stacked) {
    const size_t digits = name.find_first_not_of("0123456789", at);
    if (digits == at || digits == name.npos || name[digits] != '.') return std::nullopt;
    at = digits + 1;
  }
  constexpr std::string_view kParts[] = {".weight", ".weight_scale_inv", ".weight_packed", ".weight_scale"};
  constexpr std::string_view kStackedParts[] = {"", "_blocks", "_scales"};
  for (const char* matrix : {names.gate, names.up, names.down}) {
    if (matrix == nullptr || !name.substr(at).starts_with(matrix)) continue;
    const size_t end = at + std::string_view(matrix).size();
    const std::string_view part = name.substr(end);
    const bool is_part = stacked ? std::find(std::begin(kStackedParts), std::end(kStackedParts), part) !=
                                       std::end(kStackedParts)
                                 : std::find(std::begin(kParts), std::end(kParts), part) != std::end(kParts);
    if (is_part) return ExpertName{name.substr(0, end), part};
  }
  return std::nullopt;
}

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// ---- plan ----

enum class Work { copy, pack, pack_stacked };

// One tensor of the source and what becomes of it.
struct Piece {
  const std::string* name;
  const StoredTensor* tensor;
  const StoredTensor* scales;  // of FP8
  Work work;
  size_t first;  // in the layout: the copy, or the packed values, behind which the scale codes follow
};

struct ShardPlan {
  std::string name;
  int source;  // index into the files of the checkpoint
  SafetensorsLayout layout;
  std::vector<Piece> pieces;
};

struct Plan {
  std::vector<ShardPlan> shards;
  std::string index;  // empty: one file without an index
  std::string config;
  std::string id;     // of source and rule
  std::string times;  // of the source's files: a change that the id does not see
  uint64_t target_bytes = 0;
  size_t tensors = 0;  // to be rounded
};

struct Source {
  std::string folder;
  const Family* family = nullptr;
  std::shared_ptr<const Checkpoint> checkpoint;
  Json config;
  std::string config_text;
};

Result<const StoredTensor*> fp8_scales(const Source& source, const std::string& where,
                                       std::string_view matrix, const StoredTensor& tensor) {
  const std::string name = concat(matrix, ".weight_scale_inv");
  const StoredTensor* scales = source.checkpoint->find(name);
  if (scales == nullptr)
    return error(Code::model, where, " is F8_E4M3, but ", in_quotes(name), " is missing");
  const auto tiles = [](int64_t n) { return (n + kFp8Block - 1) / kFp8Block; };
  const std::vector<int64_t> expected = {tiles(tensor.shape[0]), tiles(tensor.shape[1])};
  if (scales->shape != expected)
    return error(Code::model, source.folder, ": ", in_quotes(name), " is ", Json(scales->shape).dump(),
                 ", expected ", Json(expected).dump(), ", one scale a tile");
  if (scales->dtype != DType::f32 && scales->dtype != DType::bf16)
    return error(Code::format, source.folder, ": ", in_quotes(name), " is ", dtype_name(scales->dtype),
                 ", expected F32 or BF16");
  return scales;
}

// What becomes of one tensor; nothing for scales that are used up.
Result<std::optional<Piece>> plan_tensor(const Source& source, const std::string& name,
                                         const StoredTensor& tensor, SafetensorsLayout& layout) {
  const std::string where =
      concat(source.checkpoint->files()[size_t(tensor.file)]->path(), ": ", in_quotes(name));
  Piece piece{&name, &tensor, nullptr, Work::copy, 0};
  const std::optional<ExpertName> expert = expert_name(name, *source.family->experts);
  if (!expert) {
    piece.first = layout.add(name, tensor.dtype, tensor.shape);
    return std::optional<Piece>(piece);
  }

  const std::string matrix(expert->matrix);
  if (expert->part == ".weight_scale_inv") {
    const StoredTensor* weight = source.checkpoint->find(matrix + ".weight");
    if (weight == nullptr || weight->dtype != DType::f8_e4m3)
      return error(Code::model, where, " are scales, but ", in_quotes(matrix + ".weight"),
                   weight ? " is not F8_E4M3" : " is missing");
    return std::optional<Piece>();
  }
  const bool stacked = source.family->experts->up == nullptr;
  if (!expert->part.empty() && expert->part != ".weight")
    return error(Code::format, where, ": the experts are MXFP4 already, expected BF16, F32 or F8_E4M3")
        .with_fix(Fix::input);
  const bool known = tensor.dtype == DType::bf16 || tensor.dtype == DType::f32 ||
                     (tensor.dtype == DType::f8_e4m3 && !stacked);
  if (!known)
    return error(Code::format, where, " is ", dtype_name(tensor.dtype), ", expected BF16",
                 stacked ? " or F32" : ", F32 or F8_E4M3");
  const size_t rank = stacked ? 3 : 2;
  if (tensor.shape.size() != rank)
    return error(Code::model, where, " has ", tensor.shape.size(), " dimensions, expected ", rank);
  const int64_t in_dim = tensor.shape[1];
  if (in_dim % kMxfp4Block != 0 || in_dim > kMaxDim)
    return error(Code::unsupported, where, " has ", in_dim, " columns; MXFP4 needs a multiple of ",
                 kMxfp4Block, " up to ", kMaxDim);
  if (stacked) {
    const int64_t experts = tensor.shape[0], out_dim = tensor.shape[2], groups = in_dim / kMxfp4Block;
    piece.work = Work::pack_stacked;
    piece.first = layout.add(matrix + "_blocks", DType::u8, {experts, out_dim, groups, kMxfp4Block / 2});
    layout.add(matrix + "_scales", DType::u8, {experts, out_dim, groups});
  } else {
    const int64_t out_dim = tensor.shape[0];
    if (tensor.dtype == DType::f8_e4m3) {
      DSA_ASSIGN(piece.scales, fp8_scales(source, where, matrix, tensor));
    }
    piece.work = Work::pack;
    piece.first = layout.add(matrix + ".weight_packed", DType::u8, {out_dim, in_dim / 2});
    layout.add(matrix + ".weight_scale", DType::u8, {out_dim, in_dim / kMxfp4Block});
  }
  return std::optional<Piece>(piece);
}

// The names under which a piece is written.
std::vector<std::string> names_of(const Piece& piece) {
  if (piece.work == Work::copy) return {*piece.name};
  if (piece.work == Work::pack_stacked) return {*piece.name + "_blocks", *piece.name + "_scales"};
  return {*piece.name + "_packed", *piece.name + "_scale"};
}

// quantization_config with the experts as a group of their own.
Json quantization(const Source& source, const Json& found) {
  if (source.family->experts->up == nullptr)
    return {{"quant_method", "mxfp4"},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  std::string block = source.family->experts->block;
  block.pop_back();  // the dot
  const Json group = {{"targets", {concat("re:.*\\.", block, "\\.experts\\.[0-9]+\\..*")}},
                      {"format", "mxfp4-pack-quantized"},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"weights",
                       {{"num_bits", 4},
                        {"type", "float"},
                        {"strategy", "group"},
                        {"group_size", kMxfp4Block},
                        {"symmetric", true},
                        {"dynamic", false},
                        {"scale_dtype", "torch.uint8"}}}};
  Json config = found.is_object() ? found : Json::object();
  if (!found.is_object())
    config = {{"quant_method", "compressed-tensors"},
              {"format", "mxfp4-pack-quantized"},
              {"quantization_status", "compressed"},
              {"ignore", Json::array()},
              {"kv_cache_scheme", nullptr}};
  config["config_groups"] = {{"group_0", group}};
  return config;
}

std::string config_text(const Source& source) {
  Json config = source.config;
  const JsonRelease release(config);
  Json* place = &config;
  const auto text = config.find("text_config");
  if (!config.contains("quantization_config") && text != config.end() && text->is_object()) place = &*text;
  Json& value = (*place)["quantization_config"];
  value = quantization(source, value);
  return json_to_text(config);
}

std::string hash_text(XXH3_state_t& state) {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  char text[33];
  snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
           static_cast<unsigned long long>(hash.low64));
  return text;
}

// Which source this is: its config and the headers of its files; and when its files were changed.
Status identify(const Source& source, Plan& plan) {
  XXH3_state_t id, times;
  XXH3_128bits_reset(&id);
  XXH3_128bits_reset(&times);
  const auto add = [](XXH3_state_t& state, std::string_view text) {
    const uint64_t size = text.size();
    XXH3_128bits_update(&state, &size, sizeof size);
    XXH3_128bits_update(&state, text.data(), text.size());
  };
  add(id, concat("dsa_convert ", kVersion));
  add(id, source.config_text);
  for (const auto& file : source.checkpoint->files()) {
    uint64_t header_bytes = 0;
    for (size_t i = 0; i < 8; ++i) header_bytes |= uint64_t(file->data()[i]) << (8 * i);
    add(id, concat(file_name(file->path()), " ", file->size()));
    add(id, file->text().substr(8, header_bytes));
    struct stat info;
    if (stat(file->path().c_str(), &info) != 0)
      return error(Code::io, file->path(), ": vanished").with_native(errno);
    add(times, concat(info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec));
  }
  plan.id = hash_text(id);
  plan.times = hash_text(times);
  return Status::ok();
}

Result<Plan> make_plan(const Source& source) {
  Plan plan;
  const auto& files = source.checkpoint->files();
  std::vector<std::vector<std::pair<const std::string*, const StoredTensor*>>> tensors(files.size());
  source.checkpoint->for_each([&](const std::string& name, const StoredTensor& tensor) {
    tensors[size_t(tensor.file)].emplace_back(&name, &tensor);
  });
  SafetensorsIndex index;
  for (size_t f = 0; f < files.size(); ++f) {
    std::stable_sort(tensors[f].begin(), tensors[f].end(),
                     [](const auto& a, const auto& b) { return a.second->data < b.second->data; });
    ShardPlan shard{file_name(files[f]->path()), int(f), {}, {}};
    for (const auto& [name, tensor] : tensors[f]) {
      DSA_ASSIGN(const std::optional<Piece> piece, plan_tensor(source, *name, *tensor, shard.layout));
      if (!piece) continue;
      shard.pieces.push_back(*piece);
      plan.tensors += piece->work != Work::copy;
      for (const std::string& each : names_of(*piece)) index.add(each, shard.name);
    }
    plan.target_bytes += shard.layout.data_bytes();
    plan.shards.push_back(std::move(shard));
  }
  if (plan.tensors == 0)
    return error(Code::model, source.folder, ": has no routed experts under the names of ",
                 source.family->name, ", '", source.family->experts->block, "experts.'");
  if (path_exists(join_path(source.folder, kIndex))) plan.index = index.text(plan.target_bytes);
  plan.config = config_text(source);
  DSA_TRY(identify(source, plan));
  return plan;
}

Result<Source> open_source(const std::string& folder) {
  Source source;
  source.folder = folder;
  while (source.folder.size() > 1 && source.folder.back() == '/') source.folder.pop_back();

  const std::string path = join_path(folder, kConfig);
  constexpr uint64_t kConfigBytesMax = uint64_t(64) << 20;
  DSA_ASSIGN(const std::vector<uint8_t> bytes, read_file(path, kConfigBytesMax));
  source.config_text.assign(bytes.begin(), bytes.end());
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(source.config, parse_json(source.config_text, path, limits));
  DSA_ASSIGN(const auto config, parse_model_config(source.config, path, folder));
  source.family = find_family(config->architecture);
  if (source.family->experts == nullptr)
    return error(Code::unsupported, path, ": the experts of ", config->architecture, " are not known");
  DSA_ASSIGN(source.checkpoint, Checkpoint::open(folder));
  return source;
}

// ---- packing ----

// Values of a tensor as f32, from raw bytes of its format. `scale` is that of the tile, of FP8.
void to_floats(const uint8_t* raw, DType dtype, float scale, int64_t stride, float* out) {
  for (int i = 0; i < kMxfp4Block; ++i) {
    if (dtype == DType::f8_e4m3) {
      out[i] = e4m3_to_f32(raw[i * stride]) * scale;
    } else if (dtype == DType::bf16) {
      bf16 value;
      memcpy(&value, raw + i * stride * int64_t(sizeof value), sizeof value);
      out[i] = to_f32(value);
    } else {
      memcpy(&out[i], raw + i * stride * int64_t(sizeof(float)), sizeof(float));
    }
  }
}

bool all_finite(const float* values) {
  bool finite = true;
  for (int i = 0; i < kMxfp4Block; ++i) finite &= std::isfinite(values[i]);
  return finite;
}

// What one thread adds up, kRunBlocks at a time, so that sums do not depend on the number of threads.
struct Run {
  RoundingErrors errors;
  int64_t bad_block = -1;  // the first that holds a value that is not finite
};

class Converter {
 public:
  Converter(const Source& source, const Plan& plan, std::string target, const ConvertOptions& options)
      : source_(source),
        plan_(plan),
        target_(std::move(target)),
        options_(options),
        pool_(options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency()))),
        runs_(kChunkBlocks / kRunBlocks) {}

  Result<Conversion> run();

 private:
  Status open_target();
  Status read_journal(const std::string& text);
  Status check_target_room() const;
  Status write_shard(const ShardPlan& shard, size_t first_piece);
  Status copy(const FileReader& reader, uint64_t from, uint64_t bytes, OutputFile& out, uint64_t to);
  Result<RoundingErrors> pack(const FileReader& reader, const ShardPlan& shard, const Piece& piece,
                              OutputFile& out);
  Result<RoundingErrors> pack_stacked(const FileReader& reader, const ShardPlan& shard, const Piece& piece,
                                      OutputFile& out);
  Status read_scales(const Piece& piece, int64_t row_begin, int64_t row_end);
  Result<RoundingErrors> sum_runs(int64_t runs, const Piece& piece, int64_t first_block) const;
  Status mark(OutputFile& out);
  Status copy_other_files();
  std::string report() const;

  uint64_t offset_in_file(const StoredTensor& tensor) const {
    return uint64_t(tensor.data - source_.checkpoint->files()[size_t(tensor.file)]->data());
  }

  const Source& source_;
  const Plan& plan_;
  const std::string target_;
  const ConvertOptions& options_;
  ThreadPool pool_;

  std::optional<Journal> journal_;
  std::vector<ConvertedTensor> done_;  // rounded tensors
  size_t pieces_done_ = 0;             // of all shards, in order
  size_t resumed_ = 0;
  std::string lines_;        // that the next mark will add to the journal
  uint64_t since_mark_ = 0;  // bytes

  std::vector<uint8_t> raw_, packed_, codes_;
  std::vector<float> scales_;  // of the rows of tiles that a chunk touches
  std::vector<Run> runs_;
};

std::string line_of(const ConvertedTensor& tensor) {
  const RoundingErrors& e = tensor.errors;
  return Json({{"tensor", tensor.name},
               {"values", e.values},
               {"saturated", e.saturated},
               {"squares", e.squares},
               {"error_squares", e.error_squares},
               {"error_max", e.error_max}})
             .dump() +
         "\n";
}

Status Converter::read_journal(const std::string& text) {
  const std::string path = join_path(target_, kJournal);
  const std::string first =
      Json({{"dsa_convert", kVersion}, {"source", plan_.id}, {"times", plan_.times}}).dump();
  if (text.empty()) {
    DSA_TRY(journal_->truncate(0));
    return journal_->append(first + "\n");
  }

  size_t kept = text.find('\n') + 1, kept_tensors = 0;
  if (text.compare(0, kept, first + "\n") != 0)
    return error(Code::mismatch, path,
                 ": this conversion was begun from another source, or its source has changed since; delete ",
                 target_, " to begin again");
  for (size_t at = kept; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    DSA_ASSIGN(const Json json, parse_json(std::string_view(text).substr(at, end - at), path));
    const JsonFields line(json, path);
    at = end;
    if (line.has("pieces")) {
      DSA_ASSIGN(const int64_t pieces, line.integer("pieces", 0, INT32_MAX));
      pieces_done_ = size_t(pieces);
      kept = end;
      kept_tensors = done_.size();
      continue;
    }
    ConvertedTensor tensor;
    DSA_ASSIGN(tensor.name, line.string("tensor"));
    DSA_ASSIGN(const int64_t values, line.integer("values", 0, INT64_MAX));
    DSA_ASSIGN(const int64_t saturated, line.integer("saturated", 0, INT64_MAX));
    DSA_ASSIGN(tensor.errors.squares, line.number("squares"));
    DSA_ASSIGN(tensor.errors.error_squares, line.number("error_squares"));
    DSA_ASSIGN(const double error_max, line.number("error_max"));
    tensor.errors.values = uint64_t(values);
    tensor.errors.saturated = uint64_t(saturated);
    tensor.errors.error_max = float(error_max);
    done_.push_back(std::move(tensor));
  }
  done_.resize(kept_tensors);  // those behind the last mark are done again
  resumed_ = kept_tensors;
  return journal_->truncate(kept);
}

// Room that files of an earlier run have taken is not needed again.
Status Converter::check_target_room() const {
  uint64_t needed = 0;
  for (const ShardPlan& shard : plan_.shards) {
    const std::string path = join_path(target_, shard.name);
    struct stat info;
    const bool begun = stat(path.c_str(), &info) == 0 || stat((path + ".partial").c_str(), &info) == 0;
    const uint64_t taken = begun ? uint64_t(info.st_blocks) * 512 : 0;
    needed += shard.layout.file_bytes() - std::min(shard.layout.file_bytes(), taken);
  }
  return check_room(target_, needed);
}

Status Converter::open_target() {
  DSA_TRY(make_folder(target_));
  std::error_code failure;
  const fs::directory_iterator begin(target_, failure);
  if (failure)
    return error(failure.value() == EACCES ? Code::access : Code::io, target_, ": ", failure.message())
        .with_native(failure.value());
  if (begin != fs::directory_iterator() && !path_exists(join_path(target_, kJournal)))
    return error(Code::state, target_,
                 ": is not empty and holds no conversion of ours, expected a new or an empty folder")
        .with_fix(Fix::input);
  DSA_ASSIGN(Journal journal, Journal::open(join_path(target_, kJournal)));
  journal_.emplace(std::move(journal));
  DSA_TRY(read_journal(journal_->content()));
  return check_target_room();
}

Status Converter::copy(const FileReader& reader, uint64_t from, uint64_t bytes, OutputFile& out,
                       uint64_t to) {
  raw_.resize(std::max(raw_.size(), kCopyBytes));
  for (uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const size_t n = size_t(std::min<uint64_t>(kCopyBytes, bytes - at));
    DSA_TRY(reader.read(from + at, raw_.data(), n));
    DSA_TRY(out.write(to + at, raw_.data(), n));
  }
  return Status::ok();
}

// The scales of the tiles that hold rows [row_begin, row_end).
Status Converter::read_scales(const Piece& piece, int64_t row_begin, int64_t row_end) {
  const StoredTensor& scales = *piece.scales;
  const int64_t across = scales.shape[1], first = row_begin / kFp8Block;
  const int64_t count = ((row_end + kFp8Block - 1) / kFp8Block - first) * across;
  const size_t size = dtype_bytes(scales.dtype);
  std::vector<uint8_t> raw(size_t(count) * size);
  DSA_ASSIGN(const FileReader reader,
             FileReader::open(source_.checkpoint->files()[size_t(scales.file)]->path()));
  DSA_TRY(reader.read(offset_in_file(scales) + uint64_t(first * across) * size, raw.data(), raw.size()));
  scales_.resize(size_t(count));
  for (int64_t i = 0; i < count; ++i) {
    bf16 value;
    if (scales.dtype == DType::bf16)
      memcpy(&value, raw.data() + size_t(i) * size, size), scales_[size_t(i)] = to_f32(value);
    else
      memcpy(&scales_[size_t(i)], raw.data() + size_t(i) * size, size);
  }
  return Status::ok();
}

Result<RoundingErrors> Converter::sum_runs(int64_t runs, const Piece& piece, int64_t first_block) const {
  RoundingErrors errors;
  for (int64_t r = 0; r < runs; ++r) {
    const Run& run = runs_[size_t(r)];
    if (run.bad_block >= 0)
      return error(Code::numeric, source_.checkpoint->files()[size_t(piece.tensor->file)]->path(), ": ",
                   in_quotes(*piece.name), " holds a value that is not finite in block ",
                   first_block + run.bad_block, " of ", kMxfp4Block);
    errors.add(run.errors);
  }
  return errors;
}

// A matrix whose blocks lie one behind the other.
Result<RoundingErrors> Converter::pack(const FileReader& reader, const ShardPlan& shard, const Piece& piece,
                                       OutputFile& out) {
  const StoredTensor& tensor = *piece.tensor;
  const int64_t in_dim = tensor.shape[1], size = int64_t(dtype_bytes(tensor.dtype));
  const int64_t blocks = tensor.shape[0] * in_dim / kMxfp4Block;
  const uint64_t values_at = shard.layout.offset(piece.first),
                 codes_at = shard.layout.offset(piece.first + 1);
  raw_.resize(std::max(raw_.size(), size_t(kChunkValues * size)));
  packed_.resize(std::max(packed_.size(), size_t(kChunkValues / 2)));
  codes_.resize(std::max(codes_.size(), size_t(kChunkBlocks)));
  RoundingErrors errors;
  for (int64_t begin = 0; begin < blocks; begin += kChunkBlocks) {
    const int64_t count = std::min(kChunkBlocks, blocks - begin), first = begin * kMxfp4Block;
    DSA_TRY(reader.read(offset_in_file(tensor) + uint64_t(first * size), raw_.data(),
                        size_t(count * kMxfp4Block * size)));
    const int64_t row = first / in_dim;
    if (piece.scales) DSA_TRY(read_scales(piece, row, (first + count * kMxfp4Block - 1) / in_dim + 1));
    const int64_t runs = (count + kRunBlocks - 1) / kRunBlocks;
    pool_.parallel_for(runs, [&](int64_t r) {
      Run& run = runs_[size_t(r)] = Run();
      for (int64_t b = r * kRunBlocks; b < std::min(count, (r + 1) * kRunBlocks); ++b) {
        float scale = 1;
        if (piece.scales) {
          const int64_t at = first + b * kMxfp4Block;
          const int64_t tile_row = at / in_dim / kFp8Block - row / kFp8Block;
          scale = scales_[size_t(tile_row * piece.scales->shape[1] + at % in_dim / kFp8Block)];
        }
        float values[kMxfp4Block];
        to_floats(raw_.data() + b * kMxfp4Block * size, tensor.dtype, scale, 1, values);
        if (!all_finite(values)) {
          run.bad_block = b;
          return;
        }
        codes_[size_t(b)] = pack_mxfp4(values, packed_.data() + b * kMxfp4Block / 2, run.errors);
      }
    });
    DSA_ASSIGN(const RoundingErrors chunk, sum_runs(runs, piece, begin));
    errors.add(chunk);
    DSA_TRY(out.write(values_at + uint64_t(first / 2), packed_.data(), size_t(count) * kMxfp4Block / 2));
    DSA_TRY(out.write(codes_at + uint64_t(begin), codes_.data(), size_t(count)));
  }
  return errors;
}

// Matrices [experts, in_dim, out_dim], written as [experts, out_dim, in_dim]: a band of outputs at a time, over all inputs.
Result<RoundingErrors> Converter::pack_stacked(const FileReader& reader, const ShardPlan& shard,
                                               const Piece& piece, OutputFile& out) {
  const StoredTensor& tensor = *piece.tensor;
  const int64_t experts = tensor.shape[0], in_dim = tensor.shape[1], out_dim = tensor.shape[2];
  const int64_t groups = in_dim / kMxfp4Block, size = int64_t(dtype_bytes(tensor.dtype));
  const int64_t band_max = std::clamp<int64_t>(kBandBytes / std::max<int64_t>(in_dim / 2, 1), 1,
                                               std::min(std::max<int64_t>(out_dim, 1), kChunkBlocks));
  const uint64_t values_at = shard.layout.offset(piece.first),
                 codes_at = shard.layout.offset(piece.first + 1);
  raw_.resize(std::max(raw_.size(), size_t(kMxfp4Block * band_max * size)));
  packed_.resize(std::max(packed_.size(), size_t(band_max * in_dim / 2)));
  codes_.resize(std::max(codes_.size(), size_t(band_max * groups)));
  RoundingErrors errors;
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t o = 0; o < out_dim; o += band_max) {
      const int64_t band = std::min(band_max, out_dim - o);
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = 0; i < kMxfp4Block; ++i)
          DSA_TRY(reader.read(
              offset_in_file(tensor) + uint64_t(((e * in_dim + g * kMxfp4Block + i) * out_dim + o) * size),
              raw_.data() + i * band * size, size_t(band * size)));
        const int64_t runs = (band + kRunBlocks - 1) / kRunBlocks;
        pool_.parallel_for(runs, [&](int64_t r) {
          Run& run = runs_[size_t(r)] = Run();
          for (int64_t b = r * kRunBlocks; b < std::min(band, (r + 1) * kRunBlocks); ++b) {
            float values[kMxfp4Block];
            to_floats(raw_.data() + b * size, tensor.dtype, 1, band, values);
            if (!all_finite(values)) {
              run.bad_block = b * groups + g;
              return;
            }
            codes_[size_t(b * groups + g)] =
                pack_mxfp4(values, packed_.data() + (b * groups + g) * kMxfp4Block / 2, run.errors);
          }
        });
        DSA_ASSIGN(const RoundingErrors sums, sum_runs(runs, piece, (e * out_dim + o) * groups));
        errors.add(sums);
      }
      const int64_t row = e * out_dim + o;
      DSA_TRY(out.write(values_at + uint64_t(row * in_dim / 2), packed_.data(), size_t(band * in_dim / 2)));
      DSA_TRY(out.write(codes_at + uint64_t(row * groups), codes_.data(), size_t(band * groups)));
    }
  return errors;
}

Status Converter::mark(OutputFile& out) {
  DSA_TRY(out.sync());
  DSA_TRY(journal_->append(lines_ + Json({{"pieces", pieces_done_}}).dump() + "\n"));
  lines_.clear();
  since_mark_ = 0;
  return Status::ok();
}

Status Converter::write_shard(const ShardPlan& shard, size_t first_piece) {
  const std::string path = join_path(target_, shard.name), partial = path + ".partial";
  const bool begun = pieces_done_ > first_piece;
  if (pieces_done_ >= first_piece + shard.pieces.size() && path_exists(path)) return Status::ok();
  struct stat info;
  if (begun && (stat(partial.c_str(), &info) != 0 || uint64_t(info.st_size) != shard.layout.file_bytes()))
    return error(Code::state, partial, ": is not what the journal says; delete ", target_, " to begin again");
  DSA_ASSIGN(OutputFile out, OutputFile::open(path, shard.layout.file_bytes(), begun));
  const std::string header = shard.layout.header();
  DSA_TRY(out.write(0, header.data(), header.size()));
  DSA_ASSIGN(const FileReader reader,
             FileReader::open(source_.checkpoint->files()[size_t(shard.source)]->path()));

  for (size_t i = 0; i < shard.pieces.size(); ++i) {
    if (pieces_done_ > first_piece + i) continue;
    const Piece& piece = shard.pieces[i];
    if (piece.work == Work::copy) {
      DSA_TRY(copy(reader, offset_in_file(*piece.tensor), piece.tensor->bytes, out,
                   shard.layout.offset(piece.first)));
    } else {
      const bool stacked = piece.work == Work::pack_stacked;
      DSA_ASSIGN(const RoundingErrors errors,
                 stacked ? pack_stacked(reader, shard, piece, out) : pack(reader, shard, piece, out));
      done_.push_back({*piece.name, errors});
      lines_ += line_of(done_.back());
    }
    ++pieces_done_;
    since_mark_ += piece.tensor->bytes;
    if (since_mark_ >= options_.mark_bytes) DSA_TRY(mark(out));
    if (piece.work != Work::copy && options_.on_tensor) DSA_TRY(options_.on_tensor(done_.back()));
  }
  DSA_TRY(mark(out));
  return out.commit();
}

// Whatever is no weight: tokenizer, templates, code, licences. Folders whose name begins with a dot belong to tools.
Status Converter::copy_other_files() {
  const auto failed = [&](const std::error_code& failure) {
    return error(Code::io, source_.folder, ": ", failure.message()).with_native(failure.value());
  };
  std::error_code failure;
  fs::recursive_directory_iterator it(source_.folder, failure), end;
  if (failure) return failed(failure);
  for (; it != end; it.increment(failure)) {
    if (failure) return failed(failure);
    const std::string name = it->path().lexically_relative(source_.folder).string();
    if (it->is_directory(failure)) {
      if (file_name(name).starts_with(".")) it.disable_recursion_pending();
      continue;
    }
    const bool weights = std::any_of(plan_.shards.begin(), plan_.shards.end(),
                                     [&](const ShardPlan& s) { return s.name == name; });
    if (weights || name == kConfig || name == kIndex || !it->is_regular_file(failure)) continue;
    const std::string path = join_path(target_, name);
    if (path_exists(path)) continue;
    DSA_TRY(make_folder(fs::path(path).parent_path().string()));
    DSA_ASSIGN(const FileReader reader, FileReader::open(join_path(source_.folder, name)));
    DSA_ASSIGN(OutputFile out, OutputFile::open(path, reader.size()));
    DSA_TRY(copy(reader, 0, reader.size(), out, 0));
    DSA_TRY(out.commit());
  }
  if (failure) return failed(failure);
  return Status::ok();
}

Json figures(const RoundingErrors& e) {
  return {{"values", e.values},
          {"relative_rms_error", e.relative_rms()},
          {"max_error", e.error_max},
          {"saturated_share", e.saturated_share()}};
}

std::string Converter::report() const {
  RoundingErrors total;
  std::string text;
  for (const ConvertedTensor& tensor : done_) {
    Json line = figures(tensor.errors);
    line["name"] = tensor.name;
    text += concat(text.empty() ? "\n" : ",\n", "    ", line.dump());
    total.add(tensor.errors);
  }
  return concat("{\n  \"dsa_convert\": ", kVersion, ",\n  \"source\": \"", plan_.id, "\",\n  \"family\": \"",
                source_.family->name, "\",\n  \"total\": ", figures(total).dump(), ",\n  \"tensors\": [",
                text, "\n  ]\n}\n");
}

Result<Conversion> Converter::run() {
  DSA_TRY(open_target());
  size_t first = 0;
  for (const ShardPlan& shard : plan_.shards) {
    DSA_TRY(write_shard(shard, first));
    first += shard.pieces.size();
  }
  DSA_TRY(copy_other_files());
  if (!plan_.index.empty()) DSA_TRY(write_file(join_path(target_, kIndex), plan_.index));
  DSA_TRY(write_file(join_path(target_, kConfig), plan_.config));
  Conversion result;
  result.report = report();
  DSA_TRY(write_file(join_path(target_, kReport), result.report));
  DSA_TRY(sync_folder(target_));
  DSA_TRY(journal_->remove());
  for (const ConvertedTensor& tensor : done_) result.errors.add(tensor.errors);
  result.tensors = done_.size();
  result.resumed = resumed_;
  result.source_bytes = source_.checkpoint->total_bytes();
  result.target_bytes = plan_.target_bytes;
  return result;
}

// The folders of a conversion may not be the same or lie within each other.
Status check_folders(const std::string& source, const std::string& target) {
  std::error_code failure;
  const fs::path from = fs::weakly_canonical(source, failure), to = fs::weakly_canonical(target, failure);
  const auto within = [](const fs::path& inner, const fs::path& outer) {
    return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
  };
  if (source.empty() || target.empty() || within(to, from) || within(from, to))
    return error(Code::argument, "the folder to write, ", in_quotes(target), ", is or contains the model's, ",
                 in_quotes(source), ", or lies within it");
  return Status::ok();
}

}  // namespace

Result<Conversion> convert_to_mxfp4(const std::string& source_folder, const std::string& target,
                                    const ConvertOptions& options) {
  DSA_TRY(check_folders(source_folder, target));
  DSA_ASSIGN(Source source, open_source(source_folder));
  const JsonRelease release(source.config);
  DSA_ASSIGN(const Plan plan, make_plan(source));

  const std::string report = join_path(target, kReport);
  if (path_exists(report)) {
    DSA_ASSIGN(const std::vector<uint8_t> bytes, read_file(report, uint64_t(1) << 30));
    Conversion result;
    result.report.assign(bytes.begin(), bytes.end());
    if (result.report.find(concat("\"source\": \"", plan.id, "\"")) == std::string::npos)
      return error(Code::mismatch, target, ": is a conversion of another source; delete it to begin again");
    if (const std::string path = join_path(target, kJournal); path_exists(path)) {  // killed at the very end
      DSA_ASSIGN(Journal journal, Journal::open(path));
      DSA_TRY(journal.remove());
    }
    result.was_finished = true;
    result.tensors = plan.tensors;
    result.source_bytes = source.checkpoint->total_bytes();
    result.target_bytes = plan.target_bytes;
    return result;
  }
  return Converter(source, plan, target, options).run();
}

}  // namespace dsa
