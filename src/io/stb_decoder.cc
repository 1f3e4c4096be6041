#include "io/stb_decoder.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace dsa {
namespace {

// The memory of one call of stb_image, freed with it, as stb_image leaks on some of its error paths.
class DecoderMemory {
 public:
  explicit DecoderMemory(size_t limit) : limit_(limit) {}
  ~DecoderMemory() {
    while (first_) free(first_);
  }
  DecoderMemory(const DecoderMemory&) = delete;
  DecoderMemory& operator=(const DecoderMemory&) = delete;

  bool over_limit() const { return over_limit_; }
  bool exhausted() const { return exhausted_; }

  void* allocate(size_t bytes) {
    if (!take(bytes)) return nullptr;
    // Zeroed: stb_image leaves parts of damaged pictures unwritten, and pixels must not show old memory.
    Block* block = static_cast<Block*>(std::calloc(1, sizeof(Block) + bytes));
    return finish(block, bytes);
  }

  void* reallocate(void* memory, size_t bytes) {
    if (!memory) return allocate(bytes);
    Block* old = static_cast<Block*>(memory) - 1;
    if (bytes > old->bytes && !take(bytes)) return nullptr;  // both live while the data moves
    if (bytes <= old->bytes) return memory;
    Block* block = static_cast<Block*>(std::calloc(1, sizeof(Block) + bytes));
    void* moved = finish(block, bytes);
    if (!moved) return nullptr;
    std::memcpy(moved, memory, old->bytes);
    free(old);
    return moved;
  }

  void release(void* memory) {
    if (memory) free(static_cast<Block*>(memory) - 1);
  }

 private:
  struct alignas(std::max_align_t) Block {
    Block *before, *after;
    size_t bytes;
  };

  bool take(size_t bytes) {
    if (bytes <= limit_ - used_) return true;
    over_limit_ = true;
    return false;
  }
  void* finish(Block* block, size_t bytes) {
    if (!block) {
      exhausted_ = true;
      return nullptr;
    }
    *block = {nullptr, first_, bytes};
    if (first_) first_->before = block;
    first_ = block;
    used_ += bytes;
    return block + 1;
  }
  void free(Block* block) {
    (block->before ? block->before->after : first_) = block->after;
    if (block->after) block->after->before = block->before;
    used_ -= block->bytes;
    std::free(block);
  }

  Block* first_ = nullptr;
  size_t used_ = 0;
  const size_t limit_;
  bool over_limit_ = false, exhausted_ = false;
};

thread_local DecoderMemory* t_memory = nullptr;  // of the call in progress

}  // namespace
}  // namespace dsa

#define STBI_MALLOC(bytes) dsa::t_memory->allocate(size_t(bytes))
#define STBI_REALLOC(memory, bytes) dsa::t_memory->reallocate(memory, size_t(bytes))
#define STBI_FREE(memory) dsa::t_memory->release(memory)
#define STBI_ASSERT(condition) ((void)0)  // must not end the host
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_FAILURE_STRINGS  // they are written without a lock
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

namespace dsa {

Result<DecodedPicture> decode_with_stb(const char* format, PictureBytes file, const PictureHeader& header) {
  if (file.size() > size_t(INT_MAX)) return unsupported_picture(format, "a file beyond 2 GiB");
  // The bound that Picture states. JPEG rounds sides up to 32 and takes 15 bytes a pixel if it is progressive with four
  // channels; an interlaced PNG of 16 bits and four channels takes 28.
  const size_t limit =
      32 * size_t(header.width + 31) * (header.height + 31) + 4 * file.size() + (size_t(1) << 20);
  auto memory = std::make_shared<DecoderMemory>(limit);
  t_memory = memory.get();
  stbi__context context;
  stbi__start_mem(&context, file.data(), int(file.size()));
  stbi__result_info info;
  DecodedPicture picture;
  void* pixels = stbi__load_main(&context, &picture.width, &picture.height, &picture.channels, 0, &info, 8);
  t_memory = nullptr;
  if (!pixels) {
    if (memory->exhausted()) return no_memory_for_picture(format, limit);
    if (memory->over_limit())
      return damaged_picture(format, file.size(), "it holds more data than its header explains");
    return damaged_picture(format, size_t(context.img_buffer - file.data()), "its data is damaged");
  }
  if (uint32_t(picture.width) != header.width || uint32_t(picture.height) != header.height)
    return damaged_picture(format, 0, "two headers that disagree");
  if (info.bits_per_channel == 16) {
    uint8_t* narrow = static_cast<uint8_t*>(pixels);
    const size_t n = size_t(picture.width) * size_t(picture.height) * size_t(picture.channels);
    for (size_t i = 0; i < n; ++i) {
      uint16_t sample;
      std::memcpy(&sample, narrow + 2 * i, 2);
      narrow[i] = uint8_t(sample >> 8);
    }
  }
  picture.pixels = std::shared_ptr<const uint8_t>(memory, static_cast<const uint8_t*>(pixels));
  return picture;
}

}  // namespace dsa
