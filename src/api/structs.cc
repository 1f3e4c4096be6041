#include "api/structs.h"

namespace dsa::api {

Status check_extensions(const dsa_ext* next) {
  constexpr int kMaxEntries = 64;
  int n = 0;
  for (; next != nullptr; next = next->next) {
    if (++n > kMaxEntries)
      return error(Code::argument, "the extension chain has more than ", kMaxEntries, " entries")
          .with_fix(Fix::input);
    if (next->struct_size < sizeof(dsa_ext) || next->struct_size > kMaxStructSize)
      return error(Code::abi, "an extension has struct_size ", next->struct_size);
    if ((next->type & DSA_EXT_REQUIRED) != 0)
      return error(Code::unsupported, "this library does not know extension ",
                   next->type & ~DSA_EXT_REQUIRED);
  }
  return Status::ok();
}

}  // namespace dsa::api
