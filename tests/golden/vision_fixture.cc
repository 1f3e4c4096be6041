#include "golden/vision_fixture.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/values.h"

namespace dsa::test {
namespace {

double difference(const Tensor& actual, const std::vector<float>& expected) {
  return relative_error(Values(actual.f32(), actual.f32() + actual.count()), expected);
}

// Largest difference of a pixel; 255 if the sizes differ. `expected` has it as <name>_canvas<suffix>.
Result<int> compare_canvas(const VisionConfig& config, const std::string& folder, const std::string& name,
                           const std::string& suffix, const Checkpoint& expected) {
  DSA_ASSIGN(const Picture picture, Picture::from_file(join_path(folder, name + ".png")));
  DSA_ASSIGN(const Canvas canvas, picture_canvas(config, picture));
  const StoredTensor* tensor = expected.find(name + "_canvas" + suffix);
  if (tensor == nullptr || tensor->dtype != DType::u8)
    return error(Code::format, "expected.safetensors: no bytes '", name, "_canvas", suffix, "'");
  if (tensor->shape != std::vector<int64_t>{canvas.height, canvas.width, 3}) return 255;
  int largest = 0;
  for (size_t i = 0; i < canvas.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int(canvas.pixels[i]) - int(tensor->data[i])));
  return largest;
}

// Patches as a tower of two frames reads them: the patches of a token one after the other, each colour twice.
std::vector<float> in_blocks(const VisionConfig& config, const PictureShape& shape,
                             const std::vector<float>& patches) {
  const size_t square = size_t(config.patch) * size_t(config.patch);
  std::vector<float> blocks;
  for (int row = 0; row < shape.rows; row += config.merge)
    for (int column = 0; column < shape.columns; column += config.merge)
      for (int i = 0; i < config.merge * config.merge; ++i) {
        const int patch = (row + i / config.merge) * shape.columns + column + i % config.merge;
        for (size_t colour = 0; colour < 3; ++colour)
          for (int frame = 0; frame < 2; ++frame) {
            const auto from = patches.begin() + int64_t((size_t(patch) * 3 + colour) * square);
            blocks.insert(blocks.end(), from, from + int64_t(square));
          }
      }
  return blocks;
}

}  // namespace

Result<std::unique_ptr<VisionPass>> run_vision(LoadedModel& model, std::vector<const Picture*> pictures) {
  DSA_ASSIGN(std::unique_ptr<VisionPass> pass, model.decoder->vision()->begin(pictures));
  for (bool done = false; !done;) {
    DSA_ASSIGN(done, pass->advance());
  }
  return pass;
}

Result<PlacedRows> place_features(const std::string& config_folder, const VisionPass& pass,
                                  const std::vector<int32_t>& ids) {
  DSA_ASSIGN(const Json json,
             read_json_file(join_path(config_folder, "config.json"), {.python_numbers = true}));
  const JsonFields fields(json, "config.json");
  const char* key = fields.has("image_token_id") ? "image_token_id" : "media_placeholder_token_id";
  DSA_ASSIGN(const int64_t media, fields.integer(key, 0, INT32_MAX));
  const auto first = std::find(ids.begin(), ids.end(), int32_t(media));
  const auto last = std::find_if(first, ids.end(), [&](int32_t id) { return id != media; });
  const Tensor features = pass.features();
  if (last - first != features.dim[0])
    return error(Code::mismatch, last - first, " media tokens, ", features.dim[0], " features");
  return PlacedRows{int(first - ids.begin()), int(last - first), features.f32()};
}

double VisionReport::max_rel() const {
  double largest = std::max(patches, features);
  for (const auto& [stage, error] : stages) largest = std::max(largest, error);
  return largest;
}

Result<VisionReport> compare_vision(LoadedModel& model, const std::string& folder,
                                    std::unique_ptr<VisionPass>& pass) {
  const VisionConfig& config = model.config->vision;
  VisionReport report;
  DSA_ASSIGN(const auto file, Checkpoint::open_file(join_path(folder, "expected.safetensors")));
  // The reference behind a gated projector has two image libraries; its logits come from Pillow's.
  const bool gated = config.projector_dim > 0;
  for (const char* name : {"image_b", "image_c"}) {
    if (gated && std::string(name) == "image_c") continue;
    DSA_ASSIGN(const int difference, compare_canvas(config, folder, name, gated ? "_pil" : "", *file));
    report.canvas = std::max(report.canvas, difference);
  }

  DSA_ASSIGN(const Picture picture, Picture::from_file(join_path(folder, "image_a.png")));
  DSA_ASSIGN(const Canvas canvas, picture_canvas(config, picture));
  const PictureShape shape = picture_shape(config, picture.width(), picture.height());
  std::vector<float> patches(size_t(shape.patches()) * size_t(config.patch_values()));
  canvas_patches(config, canvas, 0, shape.patches(), patches.data());
  DSA_ASSIGN(const std::vector<float> pixel_values, read_floats(*file, "pixel_values"));
  report.patches = relative_error(gated ? in_blocks(config, shape, patches) : patches, pixel_values);

  DSA_ASSIGN(const std::vector<float> merged, read_floats(*file, "vision_merged"));
  std::map<std::string, std::vector<float>> stages;  // that the fixture recorded
  if (gated) {
    DSA_ASSIGN(stages["downsampled"], read_floats(*file, "vision_downsampled"));
  } else {
    DSA_ASSIGN(stages["embedded"], read_floats(*file, "vision_patch_embed"));
    DSA_ASSIGN(stages["tower"], read_floats(*file, "vision_tower_out"));
  }
  for (const auto& [stage, values] : stages) report.stages[stage] = INFINITY;
  model.decoder->vision()->observe([&](const std::string& stage, const Tensor& x) {
    const auto found = stages.find(stage);
    if (found != stages.end()) report.stages[stage] = difference(x, found->second);
  });
  DSA_ASSIGN(pass, run_vision(model, {&picture}));
  model.decoder->vision()->observe({});
  report.features = difference(pass->features(), merged);
  return report;
}

}  // namespace dsa::test
