#include "io/json.h"

#include <doctest/doctest.h>

#include <cmath>

#include "support/small_stack.h"
#include "support/temp_folder.h"
#include "support/timing.h"

namespace dsa {
namespace {

Status failure_of(std::string_view text, const JsonLimits& limits = {}) {
  return parse_json(text, "test.json", limits).status();
}

bool mentions(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

const JsonLimits kPython = [] {
  JsonLimits limits;
  limits.python_numbers = true;
  return limits;
}();

TEST_SUITE("io/json") {
  TEST_CASE("values arrive as they are, members of an object by name") {
    const Json json = parse_json(R"( {"b": [1, -2, 2.5, true, null, "x\u00e9"], "a": {}} )", "test").value();
    CHECK(json.dump() == R"({"a":{},"b":[1,-2,2.5,true,null,"xé"]})");
    CHECK(parse_json("7", "test").value() == 7);
  }

  TEST_CASE("a syntax error has the name of the text and the position") {
    const Status status = failure_of(R"({"a": 1, "b" 2})");
    CHECK(status.code() == Code::json);
    CHECK(status.info().position == 13);
    CHECK(mentions(status, "test.json: at byte 13"));
    for (const char* text :
         {"", " ", "{", "[1,]", "{'a':1}", "[1] 2", "tru", "\"\xff\"", "[1e999]", "[01]", "{\"a\":1,}"})
      CHECK_MESSAGE(failure_of(text).code() == Code::json, text);
  }

  TEST_CASE("a message shows nothing that a terminal would obey") {
    const Status status = failure_of("[\"\x1b[2J\xff");
    for (const char c : status.message()) CHECK(bool(c >= ' ' && c <= '~'));
    CHECK(in_quotes("a\x1b[2J\nb") == "'a?[2J?b'");
    const std::string name = in_quotes(std::string(159, 'a') + "é" + std::string(1000000, 'b'));
    CHECK(name == "'" + std::string(159, 'a') + "...'");
  }

  TEST_CASE("LOAD-10: NaN and infinities are values when asked for, and words in strings stay words") {
    const Json json =
        parse_json(
            R"({"a": NaN, "b":[Infinity,-Infinity , 3], "c": "NaN, -Infinity \" Infinity", "NaN": 0.0})", "t",
            kPython)
            .value();
    CHECK(std::isnan(json["a"].get<double>()));
    CHECK(json["b"][0].get<double>() == INFINITY);
    CHECK(json["b"][1].get<double>() == -INFINITY);
    CHECK(json["b"][2] == 3);
    CHECK(json["c"] == "NaN, -Infinity \" Infinity");
    CHECK(json["NaN"] == 0.0);
    for (const char* text : {"NaN", "[Infinity]", "{\"a\":-Infinity}"})
      CHECK(failure_of(text).code() == Code::json);
    for (const char* text :
         {"1NaN", "[NaN1]", "-NaN", "[NaNNaN]", "[NaN NaN]", "[+Infinity]", "[nan]", "[Infinity\"\"]"})
      CHECK_MESSAGE(failure_of(text, kPython).code() == Code::json, text);
  }

  TEST_CASE("LOAD-10: comments and duplicate keys are refused") {
    CHECK(failure_of("{} // x", kPython).code() == Code::json);
    CHECK(failure_of("/* x */ {}", kPython).code() == Code::json);
    const Status status = failure_of(R"({"x": {"a": 1, "b": 2, "a": 3}})");
    CHECK(status.code() == Code::json);
    CHECK(mentions(status, "'a'"));
    CHECK(failure_of(R"([{"a": 1}, {"a": 1}])").is_ok());
  }

  TEST_CASE("size, depth and number of values are limited") {
    JsonLimits limits;
    limits.max_bytes = 100;
    limits.max_depth = 3;
    limits.max_values = 10;
    CHECK(failure_of("[[[1]]]", limits).is_ok());
    CHECK(failure_of("[[[[1]]]]", limits).code() == Code::limit);
    CHECK(failure_of("[1,2,3,4,5,6,7,8,9]", limits).is_ok());
    CHECK(failure_of("[1,2,3,4,5,6,7,8,9,10]", limits).code() == Code::limit);
    CHECK(failure_of(std::string(101, ' '), limits).info().needed == 101);
    test::on_small_stack([] { CHECK(failure_of(std::string(10'000'000, '[')).code() == Code::limit); });
  }

  TEST_CASE("many members cost no more than their number") {
    std::string text = "{";
    for (int i = 0; i < 300'000; ++i) text += concat(i ? "," : "", "\"key ", i, "\":", i);
    const double begin = test::cpu_seconds();
    CHECK(parse_json(text + "}", "test").value().size() == 300'000);
    CHECK(failure_of(text + ",\"key 7\":0}").code() == Code::json);
    CHECK(test::cpu_seconds() - begin < 20 * test::kSlowdown);  // 0.3 s; 45 billion steps if quadratic
  }

  TEST_CASE("members come one by one, and a refusal ends it") {
    std::string seen;
    const auto note = [&](std::string& key, Json& value) -> Status {
      seen += key + value.dump() + ";";
      return key == "stop" ? error(Code::model, "enough") : Status::ok();
    };
    CHECK(for_each_member(R"({"a": 1, "b": {"c": [2]}, "a": []})", "test", {}, note).is_ok());
    CHECK(seen == R"(a1;b{"c":[2]};a[];)");
    seen.clear();
    CHECK(for_each_member(R"({"stop": 1, "b": 2})", "test", {}, note).code() == Code::model);
    CHECK(seen == "stop1;");
    for (const char* text : {"[]", "3", "", "{\"a\":1"})
      CHECK(for_each_member(text, "test", {}, note).code() == Code::json);
  }

  TEST_CASE("LOAD-11: a field that is missing, of another type or out of range is named") {
    const Json json =
        parse_json(
            R"({"i": 5, "f": 2.5, "b": true, "s": "x", "n": null, "l": [1, 2], "m": ["x", 3], "o": {"i": "y"},
                              "big": 18446744073709551615, "whole": 5.0})",
            "test")
            .value();
    const JsonFields fields(json, "config.json");
    CHECK(fields.integer("i", 0, 5).value() == 5);
    CHECK(fields.integer_or("n", 7, 0, 9).value() == 7);
    CHECK(fields.number("i").value() == 5.0);
    CHECK(fields.number("f").value() == 2.5);
    CHECK(fields.boolean_or("b", false).value());
    CHECK(fields.boolean_or("missing", true).value());
    CHECK(fields.string("s").value() == "x");
    CHECK(fields.string_or("missing", "y").value() == "y");
    CHECK(fields.integers("l", 0, 9).value() == std::vector<int64_t>{1, 2});
    CHECK(fields.object("o").value().where() == "config.json: o");
    CHECK(!fields.has("n"));

    const Status failures[] = {fields.integer("i", 6, 9).status(),
                               fields.integer("i", 0, 4).status(),
                               fields.integer("big", 0, INT64_MAX).status(),
                               fields.integer("whole", 0, 9).status(),
                               fields.integer("s", 0, 9).status(),
                               fields.integer("missing", 0, 9).status(),
                               fields.integer("n", 0, 9).status(),
                               fields.integer_or("b", 1, 0, 9).status(),
                               fields.number("s").status(),
                               fields.number("b").status(),
                               fields.boolean_or("i", true).status(),
                               fields.string("i").status(),
                               fields.string_or("l", "").status(),
                               fields.integers("i", 0, 9).status(),
                               fields.integers("l", 2, 9).status(),
                               fields.strings("m").status(),
                               fields.object("l").status()};
    for (const Status& status : failures) {
      CHECK(status.code() == Code::model);
      CHECK(mentions(status, "config.json: '"));
    }
    CHECK(mentions(fields.integers("l", 2, 9).status(), "'l'[0] is 1, expected an integer from 2 to 9"));
    CHECK(mentions(fields.object("o").value().integer("i", 0, 1).status(), "config.json: o: 'i' is 'y'"));
    CHECK(JsonFields(parse_json("[1]", "t").value(), "list").integer("x", 0, 1).status().code() ==
          Code::model);
  }

  TEST_CASE("LOAD-12: a file that is empty or not there is an error with its path") {
    test::TempFolder folder;
    CHECK(mentions(read_json_file(folder.write("config.json", "")).status(), folder.file("config.json")));
    CHECK(read_json_file(folder.file("config.json")).status().code() == Code::json);
    CHECK(read_json_file(folder.file("other.json")).status().code() == Code::not_found);
    CHECK(read_json_file(folder.write("config.json", "{\"a\": 1}")).value()["a"] == 1);
  }
}

}  // namespace
}  // namespace dsa
