// A config.json, read the way configs are read. First byte 'p': with the numbers that Python writes.
#include "fuzz.h"
#include "io/json.h"

using dsa::JsonFields;
using dsa::fuzz::require;

namespace {

void read(const JsonFields& fields) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "rope_theta", "hidden_act", "layers", "names"}) {
    for (const dsa::Status& status :
         {fields.integer(key, 1, 1 << 20).status(), fields.integer_or(key, 7, 0, 100).status(),
          fields.number(key).status(), fields.number_or(key, 1.5).status(),
          fields.boolean_or(key, true).status(), fields.string(key).status(),
          fields.string_or(key, "silu").status(), fields.integers(key, -5, 5).status(),
          fields.strings(key).status()})
      if (!status.is_ok()) dsa::fuzz::require_readable(status);
    const auto n = fields.integer(key, 1, 1 << 20);
    require(!n.is_ok() || (n.value() >= 1 && n.value() <= 1 << 20), "an integer is in its range");
    require(fields.has(key) || fields.integer_or(key, 7, 0, 100).value() == 7,
            "what is missing has its default");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  dsa::JsonLimits limits;
  limits.python_numbers = data[0] == 'p';
  limits.max_values = 10'000;
  const std::string_view text = dsa::fuzz::text(data + 1, size - 1);
  const auto json = dsa::parse_json(text, "config.json", limits);
  const auto members = dsa::for_each_member(text, "config.json", limits,
                                            [](std::string&, dsa::Json&) { return dsa::Status(); });
  if (!json.is_ok()) {
    dsa::fuzz::require_readable(json.status());
    require(json.status().info().position <= text.size(), "a position is in the text");
    return 0;
  }
  require(members.is_ok() == json.value().is_object(), "an object has members and others have not");
  // Strict JSON is the same with and without Python's numbers.
  dsa::JsonLimits other = limits;
  other.python_numbers = !limits.python_numbers;
  const auto again = dsa::parse_json(text, "config.json", other);
  require(!again.is_ok() || again.value().dump() == json.value().dump(),
          "Python's numbers change nothing else");
  const JsonFields fields(json.value(), "config.json");
  read(fields);
  if (const auto inner = fields.object("text_config"); inner.is_ok()) read(inner.value());
  return 0;
}
