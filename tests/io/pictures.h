// tests/io/pictures.h: the pictures that make_pictures.py wrote, and what they must become.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace dsa::test {

using Bytes = std::vector<uint8_t>;

inline std::string picture_path(const std::string& name) {
  return DSA_SOURCE_DIR "/tests/io/pictures/" + name;
}

inline Bytes picture_file(const std::string& name) {
  std::ifstream file(picture_path(name), std::ios::binary);
  if (!file) throw std::runtime_error(name + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lines of a list, without comments.
inline std::vector<std::istringstream> picture_list(const std::string& name) {
  std::ifstream file(picture_path(name));
  std::vector<std::istringstream> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) lines.emplace_back(line);
  if (lines.empty()) throw std::runtime_error(name + " is empty");
  return lines;
}

struct Sample {
  std::string name;
  int width, height, channels;
  int tolerance;  // of a value; 0 where the format loses nothing
  std::string raw;
};

inline std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (std::istringstream& line : picture_list("pictures.txt")) {
    Sample s;
    line >> s.name >> s.width >> s.height >> s.channels >> s.tolerance >> s.raw;
    all.push_back(s);
  }
  return all;
}

}  // namespace dsa::test
