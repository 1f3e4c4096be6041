// tests/golden/vision_fixture.h: the pictures of a fixture folder, through our tower and beside what is expected.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/fixture.h"
#include "io/picture.h"

namespace dsa::test {

// Sends pictures through the tower of the model.
Result<std::unique_ptr<VisionPass>> run_vision(LoadedModel& model, std::vector<const Picture*> pictures);

// The rows of a pass as features of the media tokens in `ids`, which must be as many.
Result<PlacedRows> place_features(const std::string& config_folder, const VisionPass& pass,
                                  const std::vector<int32_t>& ids);

struct VisionReport {
  // Largest difference over the largest magnitude: normalised patches, what the tower shows on its way, features.
  double patches = 0, features = 0;
  std::map<std::string, double> stages;
  int canvas = 0;  // largest difference of a pixel of the resized pictures

  double max_rel() const;
};

// `pass` becomes the one of image_a.
Result<VisionReport> compare_vision(LoadedModel& model, const std::string& folder,
                                    std::unique_ptr<VisionPass>& pass);

}  // namespace dsa::test
