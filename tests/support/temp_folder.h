// tests/support/temp_folder.h: a folder that is gone after the test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dsa::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "dsa-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Creates folders on the way; returns the path.
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary).write(content.data(), std::streamsize(content.size()));
    return file(name);
  }
  void link(const std::string& target, const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    std::filesystem::create_symlink(target, file(name));
  }

 private:
  std::string path_;
};

}  // namespace dsa::test
