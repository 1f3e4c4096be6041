// engine/picture_cache.h: what the vision tower made of pictures, kept by their content until there is too much.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace dsa {

struct PictureFeatures {
  std::vector<float> rows;  // [tokens, hidden]
};

// For one thread. The features of a picture live on while a run holds them.
class PictureCache {
 public:
  explicit PictureCache(uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Null if it has none.
  std::shared_ptr<const PictureFeatures> find(const std::string& id) {
    const auto at = by_id_.find(id);
    if (at == by_id_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, at->second);
    return at->second->features;
  }

  // The ones that were not asked for longest make room. What is larger than the cache is not kept.
  void insert(const std::string& id, std::shared_ptr<const PictureFeatures> features) {
    const uint64_t bytes = bytes_of(*features);
    if (bytes > limit_ || by_id_.contains(id)) return;
    while (bytes_ + bytes > limit_) {
      bytes_ -= bytes_of(*entries_.back().features);
      by_id_.erase(entries_.back().id);
      entries_.pop_back();
    }
    entries_.push_front({id, std::move(features)});
    try {
      by_id_.emplace(id, entries_.begin());
    } catch (...) {
      entries_.pop_front();
      throw;
    }
    bytes_ += bytes;
  }

  void clear() {
    by_id_.clear();
    entries_.clear();
    bytes_ = 0;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const PictureFeatures> features;
  };
  static uint64_t bytes_of(const PictureFeatures& features) { return features.rows.size() * sizeof(float); }

  const uint64_t limit_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // the last one asked for is the first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
};

}  // namespace dsa
