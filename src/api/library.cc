// api/library.cc: version, names, the description of the layout.
#include <cstddef>
#include <mutex>
#include <string>

#include "api/guard.h"

using namespace dsa;
using namespace dsa::api;

namespace {

struct Name {
  dsa_status status;
  const char* name;
};

constexpr Name kNames[] = {
#define DSA_ABI_STATUS(name) {name, #name},
#define DSA_ABI_STRUCT(name)
#define DSA_ABI_FIELD(type, field, declared)
#define DSA_ABI_CONSTANT(name)
#define DSA_ABI_FUNCTION(name, declared)
#include "api/abi_table.inc"
#undef DSA_ABI_STATUS
#undef DSA_ABI_STRUCT
#undef DSA_ABI_FIELD
#undef DSA_ABI_CONSTANT
#undef DSA_ABI_FUNCTION
};

// One line of the description. Plain data: a function with a statement for each would compile for minutes.
struct Entry {
  enum Kind { structure, member, constant, function } kind;
  const char* name;
  long long number;      // size of a structure, offset of a field, value of a constant
  size_t size;           // of a field
  const char* declared;  // of a field or function
};

constexpr Entry kEntries[] = {
#define DSA_ABI_STATUS(name)
#define DSA_ABI_STRUCT(name) {Entry::structure, #name, sizeof(name), 0, ""},
#define DSA_ABI_FIELD(type, field, declared) \
  {Entry::member, #field, offsetof(type, field), sizeof(type::field), declared},
#define DSA_ABI_CONSTANT(name) {Entry::constant, #name, static_cast<long long>(name), 0, ""},
#define DSA_ABI_FUNCTION(name, declared) {Entry::function, #name, 0, 0, declared},
#include "api/abi_table.inc"
};

std::string describe() {
  std::string structs, fields, constants, functions;
  const auto quote = [](const char* text) { return "\"" + std::string(text) + "\""; };
  const auto separate = [](std::string& list) { list += list.empty() ? "\n" : ",\n"; };
  const auto end_struct = [&] {
    if (!structs.empty()) structs += fields + "\n      }\n    }";
    fields.clear();
  };
  for (const Entry& entry : kEntries) switch (entry.kind) {
      case Entry::structure:
        end_struct();
        separate(structs);
        structs +=
            "    " + quote(entry.name) + ": {\"size\": " + std::to_string(entry.number) + ", \"fields\": {";
        break;
      case Entry::member:
        separate(fields);
        fields += "        " + quote(entry.name) + ": {\"offset\": " + std::to_string(entry.number) +
                  ", \"size\": " + std::to_string(entry.size) + ", \"type\": " + quote(entry.declared) + "}";
        break;
      case Entry::constant:
        separate(constants);
        constants += "    " + quote(entry.name) + ": " + std::to_string(entry.number);
        break;
      case Entry::function:
        separate(functions);
        functions += "    " + quote(entry.name) + ": " + quote(entry.declared);
        break;
    }
  end_struct();
  return "{\n  \"version\": " + quote(dsa_version_string()) +
         ",\n  \"api_level\": " + std::to_string(DSA_API_LEVEL) + ",\n  \"structs\": {" + structs +
         "\n  },\n  \"constants\": {" + constants + "\n  },\n  \"functions\": {" + functions + "\n  }\n}\n";
}

}  // namespace

uint32_t dsa_version(void) { return DSA_VERSION_MAJOR * 10000 + DSA_VERSION_MINOR * 100 + DSA_VERSION_PATCH; }

#if defined(DSA_HAS_CUDA)
const char* dsa_version_string(void) { return "0.2.0 (cpu, cuda)"; }
#else
const char* dsa_version_string(void) { return "0.2.0 (cpu)"; }
#endif
static_assert(DSA_VERSION_MAJOR == 0 && DSA_VERSION_MINOR == 2 && DSA_VERSION_PATCH == 0,
              "and the text above");

uint32_t dsa_api_level(void) { return DSA_API_LEVEL; }

const char* dsa_abi_json(void) {
  const char* text = "";
  guard_void([&] {
    static const std::string& json = *new std::string(describe());  // never destroyed
    text = json.c_str();
  });
  return text;
}

int32_t dsa_has_feature(const char* name) {
  if (name == nullptr) return 0;
#if defined(DSA_HAS_CUDA)
  if (std::string_view(name) == "cuda") return 1;
#endif
  for (const char* known : {"cpu", "images", "text"})
    if (std::string_view(name) == known) return 1;
  return 0;
}

const char* dsa_status_name(dsa_status status) {
  for (const Name& entry : kNames)
    if (entry.status == status) return entry.name;
  return "DSA_STATUS_UNKNOWN";
}
