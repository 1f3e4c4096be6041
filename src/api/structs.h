// api/structs.h: structs that cross the boundary: sizes, flags, extension chains, strings.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/status.h"
#include "dsa_sdk.h"
#include "text/utf8_stream.h"

namespace dsa::api {

constexpr uint32_t kMaxStructSize = 4096;  // larger sizes are garbage, not the future

Status check_extensions(const dsa_ext* next);

// An input struct as this library knows it: what the caller's version lacks is zero, what this one does not
// know must be.
template <class T>
Status read_in(const T* in, const char* name, T& out) {
  constexpr uint32_t kHeader = 16;  // struct_size, flags, next
  const uint32_t size = in->struct_size;
  if (size < kHeader || size > kMaxStructSize)
    return error(Code::abi, name, ": struct_size is ", size, ", expected ", sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return error(Code::abi, name, ": it uses a field that this library does not know, of ", size,
                   " bytes it knows ", sizeof(T));
  out = T();
  std::memcpy(static_cast<void*>(&out), in, std::min<size_t>(size, sizeof(T)));
  if (out.flags != 0) return error(Code::unsupported, name, ": unknown flags ", out.flags);
  return check_extensions(out.next);
}

template <class T>
bool is_plausible_out(const T* out) {
  return out->struct_size >= 8 && out->struct_size <= kMaxStructSize;  // struct_size, flags
}

template <class T>
Status check_out(const T* out, const char* name) {
  if (out == nullptr) return error(Code::argument, name, " is NULL").with_fix(Fix::input);
  if (!is_plausible_out(out))
    return error(Code::abi, name, ": struct_size is ", out->struct_size, ", expected ", sizeof(T));
  return Status::ok();
}

// Fills an output struct up to the smaller of both sizes; what this library does not know becomes zero.
template <class T>
void write_out(T value, T* out) {
  const uint32_t size = out->struct_size;
  value.struct_size = size;
  value.flags = 0;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(T), 0, size - sizeof(T));
}

inline Status check_pointer(const void* pointer, const char* name) {
  return pointer != nullptr ? Status::ok() : error(Code::argument, name, " is NULL").with_fix(Fix::input);
}

inline Status check_reserved(bool in_use, const char* name) {
  return in_use ? error(Code::unsupported, name, " is reserved in this version") : Status::ok();
}

// A constant of a group that begins at 0.
inline Status check_constant(int32_t value, int32_t count, const char* name) {
  if (value >= 0 && value < count) return Status::ok();
  return error(Code::argument, name, " is ", value, ", expected 0 to ", count - 1).with_fix(Fix::input);
}

inline Result<std::string_view> read_text(const char* text, size_t len, const char* name) {
  if (text == nullptr && len != 0) return error(Code::argument, name, " is NULL").with_fix(Fix::input);
  return len == DSA_NTS ? std::string_view(text) : std::string_view(text, len);
}

inline Result<std::string_view> read_utf8(const char* text, size_t len, const char* name) {
  DSA_ASSIGN(const std::string_view view, read_text(text, len, name));
  if (const size_t at = find_invalid_utf8(view); at != std::string_view::npos)
    return error(Code::utf8, name, " is not UTF-8 at byte ", at).with_fix(Fix::input).with_position(at);
  return view;
}

inline dsa_str view_of(std::string_view text) { return {text.data(), text.size()}; }

// Views live as long as `info`.
inline dsa_error error_of(const ErrorInfo& info) {
  dsa_error made{};
  made.code = int32_t(info.code);
  made.fix = int32_t(info.fix);
  made.native = info.native;
  made.needed = info.needed;
  made.available = info.available;
  made.position = info.position;
  made.message = view_of(info.message);
  return made;
}

inline Status check_timeout(int64_t timeout_ms) {
  if (timeout_ms >= DSA_FOREVER) return Status::ok();
  return error(Code::argument, "timeout_ms is ", timeout_ms, ", expected DSA_FOREVER or 0 and above")
      .with_fix(Fix::input);
}

// Up to cap elements, and the count of all.
template <class T>
dsa_status fill(const T* from, size_t n, T* out, size_t cap, size_t* count) {
  const size_t take = std::min(n, cap);
  if (take > 0) std::memcpy(out, from, take * sizeof(T));
  *count = n;
  return take < n ? DSA_PARTIAL : DSA_OK;
}

inline Status check_buffer(const void* out, size_t cap, const size_t* count) {
  if (out == nullptr && cap != 0) return error(Code::argument, "the buffer is NULL").with_fix(Fix::input);
  return check_pointer(count, "the count");
}

}  // namespace dsa::api
