#include "golden/vision_fixture.h"

#include <algorithm>
#include <cmath>

#include "tests/support/values.h"

namespace dsa::test {
namespace {

double difference(const Tensor& actual, const std::vector<float>& expected) {
  return relative_error(Values(actual.f32(), actual.f32() + actual.count()), expected);
}

// Largest difference of a pixel; 255 if the sizes differ.
Result<int> compare_canvas(const VisionConfig& config, const std::string& folder, const std::string& name,
                           const Checkpoint& expected) {
  DSA_ASSIGN(const Picture picture, Picture::from_file(join_path(folder, name + ".png")));
  DSA_ASSIGN(const Canvas canvas, picture_canvas(config, picture));
  const StoredTensor* tensor = expected.find(name + "_canvas");
  if (tensor == nullptr || tensor->dtype != DType::u8)
    return error(Code::format, "expected.safetensors: no bytes '", name, "_canvas'");
  if (tensor->shape != std::vector<int64_t>{canvas.height, canvas.width, 3}) return 255;
  int largest = 0;
  for (size_t i = 0; i < canvas.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int(canvas.pixels[i]) - int(tensor->data[i])));
  return largest;
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
  DSA_ASSIGN(const int64_t media,
             JsonFields(json, "config.json").integer("media_placeholder_token_id", 0, INT32_MAX));
  const auto first = std::find(ids.begin(), ids.end(), int32_t(media));
  const auto last = std::find_if(first, ids.end(), [&](int32_t id) { return id != media; });
  const Tensor features = pass.features();
  if (last - first != features.dim[0])
    return error(Code::mismatch, last - first, " media tokens, ", features.dim[0], " features");
  return PlacedRows{int(first - ids.begin()), int(last - first), features.f32()};
}

double VisionReport::max_rel() const { return std::max({patches, embedded, tower, features}); }

Result<VisionReport> compare_vision(LoadedModel& model, const std::string& folder,
                                    std::unique_ptr<VisionPass>& pass) {
  const VisionConfig& config = model.config->vision;
  VisionReport report;
  DSA_ASSIGN(const auto file, Checkpoint::open_file(join_path(folder, "expected.safetensors")));
  for (const char* name : {"image_b", "image_c"}) {
    DSA_ASSIGN(const int difference, compare_canvas(config, folder, name, *file));
    report.canvas = std::max(report.canvas, difference);
  }

  DSA_ASSIGN(const Picture picture, Picture::from_file(join_path(folder, "image_a.png")));
  DSA_ASSIGN(const Canvas canvas, picture_canvas(config, picture));
  const PictureShape shape = picture_shape(config, picture.width(), picture.height());
  std::vector<float> patches(size_t(shape.patches()) * size_t(config.patch_values()));
  canvas_patches(config, canvas, 0, shape.patches(), patches.data());
  DSA_ASSIGN(const std::vector<float> pixel_values, read_floats(*file, "pixel_values"));
  report.patches = relative_error(patches, pixel_values);

  DSA_ASSIGN(const std::vector<float> embedded, read_floats(*file, "vision_patch_embed"));
  DSA_ASSIGN(const std::vector<float> tower, read_floats(*file, "vision_tower_out"));
  DSA_ASSIGN(const std::vector<float> merged, read_floats(*file, "vision_merged"));
  report.embedded = report.tower = INFINITY;
  model.decoder->vision()->observe([&](const std::string& stage, const Tensor& x) {
    if (stage == "embedded") report.embedded = difference(x, embedded);
    if (stage == "tower") report.tower = difference(x, tower);
  });
  DSA_ASSIGN(pass, run_vision(model, {&picture}));
  model.decoder->vision()->observe({});
  report.features = difference(pass->features(), merged);
  return report;
}

}  // namespace dsa::test
