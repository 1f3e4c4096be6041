#include "api/guard.h"

#include <algorithm>

#include "api/structs.h"

namespace dsa::api {
namespace {

struct LastError {
  int32_t code, fix;
  int64_t native;
  uint64_t needed, available, position;
  size_t length;
  char message[1024];
};
thread_local LastError t_error;  // zero, and trivially destroyed

}  // namespace

std::atomic<void (*)()> guard_hook{nullptr};

void set_last_error(const ErrorInfo& info) noexcept {
  set_last_error(info.code, info.fix, info.message);
  t_error.native = info.native;
  t_error.needed = info.needed;
  t_error.available = info.available;
  t_error.position = info.position;
}

void set_last_error(Code code, Fix fix, std::string_view message) noexcept {
  size_t n = std::min(message.size(), sizeof(t_error.message) - 1);
  if (n < message.size())
    while (n > 0 && (uint8_t(message[n]) & 0xc0) == 0x80) --n;  // at the border of a code point
  t_error.code = int32_t(code);
  t_error.fix = int32_t(fix);
  t_error.native = 0;
  t_error.needed = t_error.available = t_error.position = 0;
  t_error.length = n;
  std::memcpy(t_error.message, message.data(), n);
  t_error.message[n] = 0;
}

}  // namespace dsa::api

using namespace dsa;
using namespace dsa::api;

dsa_status dsa_last_error(dsa_error* out) {
  // No guard: it must not disturb what it reports. Nothing here can throw.
  if (out == nullptr) return DSA_ERROR_ARGUMENT;
  if (!is_plausible_out(out)) return DSA_ERROR_ABI;
  dsa_error error{};
  error.code = t_error.code;
  error.fix = t_error.fix;
  error.native = t_error.native;
  error.needed = t_error.needed;
  error.available = t_error.available;
  error.position = t_error.position;
  error.message = {t_error.message, t_error.length};
  write_out(error, out);
  return DSA_OK;
}
