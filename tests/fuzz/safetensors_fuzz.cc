// A safetensors file. First byte 'f': the rest is the file; otherwise the rest is a header, a NUL and the
// data, and the length in front is made to fit, as a fuzzer would seldom guess it.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz.h"
#include "io/checkpoint.h"

using dsa::fuzz::require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view input = dsa::fuzz::text(data + 1, size - 1);
  std::string file;
  if (data[0] == 'f') {
    file = input;
  } else {
    const std::string_view header = input.substr(0, input.find('\0'));
    for (int i = 0; i < 8; ++i) file += char(uint8_t(uint64_t(header.size()) >> (8 * i)));
    file += header;
    if (header.size() < input.size()) file += input.substr(header.size() + 1);
  }
  const int fd = memfd_create("safetensors", MFD_CLOEXEC);
  require(fd >= 0 && write(fd, file.data(), file.size()) == ssize_t(file.size()), "the fuzzer has memory");
  const auto opened = dsa::Checkpoint::open_file("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!opened.is_ok()) return dsa::fuzz::require_readable(opened.status()), 0;

  const dsa::Checkpoint& checkpoint = *opened.value();
  const dsa::MappedFile& mapped = *checkpoint.files()[0];
  uint64_t total = 0;
  checkpoint.for_each([&](const std::string& name, const dsa::StoredTensor& tensor) {
    uint64_t bytes = dsa::dtype_bytes(tensor.dtype);
    for (const int64_t n : tensor.shape) bytes *= uint64_t(n);
    require(bytes == tensor.bytes, "a tensor has the bytes of its shape");
    require(tensor.data >= mapped.data() && tensor.data + tensor.bytes <= mapped.data() + mapped.size(),
            "a tensor lies in its file");
    require(checkpoint.find(name) == &tensor, "a tensor is found by its name");
    total += tensor.bytes;
  });
  require(total == checkpoint.total_bytes() && total <= mapped.size(), "tensors do not overlap");
  return 0;
}
