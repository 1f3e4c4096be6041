#include "io/checkpoint.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "support/temp_folder.h"
#include "support/timing.h"

namespace dsa {
namespace {

std::string length_prefix(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[size_t(i)] = char(uint8_t(length >> (8 * i)));
  return bytes;
}

std::string safetensors(const std::string& header, size_t data_bytes = 0) {
  std::string data(data_bytes, '\0');
  for (size_t i = 0; i < data_bytes; ++i) data[i] = char(uint8_t(i));
  return length_prefix(header.size()) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                  uint64_t end) {
  return concat('"', name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", begin,
                ',', end, "]}");
}

// A header of these entries.
std::string object(std::initializer_list<std::string> entries) {
  std::string json = "{";
  for (const std::string& each : entries) (json += json.size() > 1 ? "," : "") += each;
  return json += "}";
}

// A file with the named byte tensors, one byte each.
std::string byte_tensors(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i)
    header += concat(i ? "," : "", entry(names[i], "U8", "[1]", i, i + 1));
  return safetensors(header + "}", names.size());
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& weight_map) {
  std::string json = R"({"metadata": {"total_size": 1}, "weight_map": {)";
  for (size_t i = 0; i < weight_map.size(); ++i)
    json += concat(i ? ", " : "", '"', weight_map[i].first, "\": \"", weight_map[i].second, '"');
  return json + "}}";
}

constexpr const char* kIndex = "model.safetensors.index.json";

bool mentions(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// Opens a file of that content; the failure must name the file.
Status failure_of(const std::string& content) {
  test::TempFolder folder;
  const std::string path = folder.write("t.safetensors", content);
  const Status status = Checkpoint::open_file(path).status();
  if (!status.is_ok()) CHECK(mentions(status, path));
  return status;
}

// A failure of one tensor; it must name the tensor too.
Code code_of(const std::string& dtype, const std::string& shape, uint64_t begin, uint64_t end,
             size_t data_bytes) {
  const Status status =
      failure_of(safetensors(object({entry("layers.0.w", dtype, shape, begin, end)}), data_bytes));
  if (!status.is_ok()) CHECK(mentions(status, "'layers.0.w'"));
  return status.code();
}

TEST_SUITE("io/checkpoint") {
  TEST_CASE("tensors are found in place") {
    test::TempFolder folder;
    const std::string path = folder.write(
        "t.safetensors",
        safetensors(R"({"__metadata__":{"format":"pt"},)" + entry("b", "BF16", "[2, 3]", 4, 16) + "," +
                        entry("a", "F32", "[]", 0, 4) + "," + entry("none", "F64", "[0,7]", 16, 16) + "}    ",
                    16));
    const auto checkpoint = Checkpoint::open_file(path).value();
    CHECK(checkpoint->num_tensors() == 3);
    CHECK(checkpoint->total_bytes() == 16);
    const StoredTensor* b = checkpoint->find("b");
    REQUIRE(b);
    CHECK(b->dtype == DType::bf16);
    CHECK(b->shape == std::vector<int64_t>{2, 3});
    CHECK(b->bytes == 12);
    CHECK(b->data[0] == 4);
    CHECK(checkpoint->find("a")->shape.empty());
    CHECK(checkpoint->find("none")->bytes == 0);
    CHECK(checkpoint->find("c") == nullptr);
    size_t visited = 0;
    checkpoint->for_each([&](const std::string&, const StoredTensor&) { ++visited; });
    CHECK(visited == 3);
  }

  TEST_CASE("every dtype that we know is read, and others are named") {
    const std::pair<const char*, int> dtypes[] = {{"BOOL", 1}, {"U8", 1},      {"I8", 1},     {"I32", 4},
                                                  {"I64", 8},  {"F16", 2},     {"BF16", 2},   {"F32", 4},
                                                  {"F64", 8},  {"F8_E4M3", 1}, {"F8_E8M0", 1}};
    for (const auto& [name, bytes] : dtypes)
      CHECK(code_of(name, "[3]", 0, uint64_t(3 * bytes), size_t(3 * bytes)) == Code::ok);
    CHECK(code_of("F4", "[3]", 0, 3, 3) == Code::format);
    CHECK(mentions(failure_of(safetensors(object({entry("x", "F8_E5M2", "[1]", 0, 1)}), 1)), "'F8_E5M2'"));
  }

  TEST_CASE("LOAD-01: shape products that wrap, negative and too many dimensions are refused") {
    CHECK(code_of("U8", "[4294967296, 4294967296]", 0, 0, 0) == Code::corrupt);
    CHECK(code_of("F32", "[4611686018427387904]", 0, 0, 0) == Code::corrupt);
    CHECK(code_of("F64", "[2305843009213693952, 8]", 0, 0, 0) == Code::corrupt);
    CHECK(code_of("U8", "[4294967296, 4294967296, 0]", 0, 0, 0) == Code::corrupt);  // zero excuses nothing
    CHECK(code_of("U8", "[0, 4294967296, 4294967296]", 0, 0, 0) == Code::corrupt);
    CHECK(code_of("U8", "[-1, -1]", 0, 1, 1) == Code::corrupt);
    CHECK(code_of("U8", "[18446744073709551615]", 0, 0, 0) == Code::corrupt);
    CHECK(code_of("U8", "[18446744073709551617]", 0, 1, 1) == Code::corrupt);
    CHECK(code_of("U8", "[1.0]", 0, 1, 1) == Code::corrupt);
    CHECK(code_of("U8", "1", 0, 1, 1) == Code::corrupt);
    CHECK(code_of("U8", "[1,1,1,1,1,1,1,1]", 0, 1, 1) == Code::ok);
    CHECK(code_of("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1, 1) == Code::format);
  }

  TEST_CASE("LOAD-02: a header length that the file cannot hold is refused before anything is allocated") {
    const auto peak_kib = [] {
      rusage usage;
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss;
    };
    const long peak_before = peak_kib();
    const std::string sound = byte_tensors({"a"});
    const auto with_length = [&](uint64_t length) {
      return failure_of(length_prefix(length) + sound.substr(8)).code();
    };
    CHECK(with_length(sound.size() - 9) == Code::ok);
    for (const uint64_t length :
         {uint64_t(0), uint64_t(1), ~uint64_t(0), ~uint64_t(2), ~uint64_t(7), uint64_t(sound.size()),
          uint64_t(sound.size() - 7), uint64_t(101'000'000), uint64_t(100'000'000), uint64_t(1) << 63})
      CHECK_MESSAGE(with_length(length) == Code::corrupt, length);
    for (const size_t size : {0, 1, 7, 8}) CHECK(failure_of(std::string(size, '\0')).code() == Code::corrupt);
    CHECK(failure_of(length_prefix(4)).code() == Code::corrupt);
    // More than the limit stays refused where the file is that long.
    test::TempFolder folder;
    const std::string path = folder.write("t.safetensors", length_prefix(101'000'000) + "{");
    REQUIRE(truncate(path.c_str(), 200'000'000) == 0);
    CHECK(Checkpoint::open_file(path).status().code() == Code::corrupt);
    CHECK(peak_kib() - peak_before < 50'000);
  }

  TEST_CASE("LOAD-03: shape, offsets and file size must agree") {
    CHECK(code_of("F32", "[1000,1000]", 0, 4, 4) == Code::corrupt);
    CHECK(code_of("F32", "[1]", 0, 4, 3) == Code::corrupt);  // truncated
    CHECK(code_of("F32", "[1]", 4, 8, 4) == Code::corrupt);
    CHECK(code_of("F32", "[1]", 0, 5, 8) == Code::corrupt);
    CHECK(code_of("F32", "[1]", 4, 0, 8) == Code::corrupt);
    CHECK(code_of("U8", "[0]", 9, 9, 8) == Code::corrupt);
    CHECK(code_of("U8", "[0]", 8, 8, 8) == Code::ok);
    CHECK(code_of("U8", "[1]", UINT64_MAX, 0, 8) == Code::corrupt);
    const Status status = failure_of(safetensors(object({entry("x", "F32", "[1000,1000]", 0, 4)}), 4));
    CHECK(mentions(status, "'x': data_offsets [0, 4] span 4 bytes, expected 4000000 for F32 [1000, 1000]"));
  }

  TEST_CASE("tensors may lie in any order but not on each other") {
    CHECK(failure_of(safetensors(object({entry("a", "U8", "[4]", 4, 8), entry("b", "U8", "[4]", 0, 4)}), 8))
              .is_ok());
    const Status status =
        failure_of(safetensors(object({entry("a", "U8", "[4]", 3, 7), entry("b", "U8", "[4]", 0, 4)}), 8));
    CHECK(status.code() == Code::corrupt);
    CHECK(mentions(status, "'b' ends at byte 4 and 'a' begins at 3"));
    CHECK(failure_of(safetensors(object({entry("a", "U8", "[4]", 0, 4), entry("b", "U8", "[4]", 0, 4)}), 8))
              .code() == Code::corrupt);
    CHECK(failure_of(safetensors(object({entry("a", "U8", "[4]", 0, 4), entry("b", "U8", "[0]", 2, 2)}), 4))
              .is_ok());
  }

  TEST_CASE("LOAD-10: the header stays strict") {
    const std::string sound = entry("a", "U8", "[1]", 0, 1);
    for (const std::string& header :
         {std::string("[]"), std::string("{\"a\":NaN}"), object({sound, sound}), concat("{", sound),
          concat("{", sound, "} x"), concat("{", sound, "} // x"), concat(" {", sound, "}"),
          concat("{", sound, ",}"), std::string("{\"a\":{"), std::string("x")})
      CHECK_MESSAGE(failure_of(safetensors(header, 1)).code() == Code::corrupt, header);
    for (const char* header :
         {"{\"a\":3}", "{\"a\":{}}", R"({"a":{"dtype":"U8","shape":[1]}})",
          R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", R"({"__metadata__":3})",
          R"({"__metadata__":{"a":1}})", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})"})
      CHECK_MESSAGE(failure_of(safetensors(header, 1)).code() == Code::format, header);
    for (const char* offsets :
         {"[0]", "[0,1,1]", "{}", "\"x\"", "[0.0,1.0]", "[-1,0]", "null", "[\"0\",\"1\"]"}) {
      const std::string header = concat(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":)", offsets, "}}");
      CHECK_MESSAGE(failure_of(safetensors(header, 1)).code() == Code::corrupt, header);
    }
    CHECK(failure_of(safetensors(R"({"__metadata__":{},"__metadata__":{}})")).code() == Code::corrupt);
    const Status nested =
        failure_of(safetensors("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"));
    CHECK(nested.code() == Code::limit);
  }

  TEST_CASE("a name out of a file is shortened in the message") {
    const Status status =
        failure_of(safetensors(object({entry(std::string(100'000, 'x'), "F4", "[1]", 0, 1)}), 1));
    CHECK(status.message().size() < 1000);
  }

  TEST_CASE("shards are read through their index") {
    test::TempFolder folder;
    folder.write("one.safetensors", byte_tensors({"a", "b"}));
    folder.write("two.safetensors", byte_tensors({"c"}));
    folder.write("stranger.safetensors", "not looked at");
    folder.write(kIndex,
                 index_of({{"c", "two.safetensors"}, {"a", "one.safetensors"}, {"b", "one.safetensors"}}));
    const auto checkpoint = Checkpoint::open(folder.path()).value();
    CHECK(checkpoint->num_tensors() == 3);
    CHECK(checkpoint->total_bytes() == 3);
    CHECK(checkpoint->files().size() == 2);
    CHECK(checkpoint->files()[size_t(checkpoint->find("c")->file)]->path() == folder.file("two.safetensors"));
    CHECK(checkpoint->find("b")->data[0] == 1);
  }

  TEST_CASE("one file needs no index, and an empty folder has nothing") {
    test::TempFolder folder;
    CHECK(Checkpoint::open(folder.path()).status().code() == Code::not_found);
    CHECK(Checkpoint::open(folder.file("missing")).status().code() == Code::not_found);
    folder.write("model.safetensors", byte_tensors({"a"}));
    CHECK(Checkpoint::open(folder.path()).value()->num_tensors() == 1);
  }

  TEST_CASE("LOAD-04: missing shards are listed, and there is no model") {
    test::TempFolder folder;
    std::vector<std::pair<std::string, std::string>> weight_map;
    for (int i = 1; i <= 4; ++i) {
      const std::string file = concat("model-0000", i, "-of-00004.safetensors");
      folder.write(file, byte_tensors({concat("t", i)}));
      weight_map.push_back({concat("t", i), file});
    }
    folder.write(kIndex, index_of(weight_map));
    REQUIRE(Checkpoint::open(folder.path()).is_ok());
    unlink(folder.file("model-00002-of-00004.safetensors").c_str());
    std::filesystem::rename(folder.file("model-00004-of-00004.safetensors"),
                            folder.file("renamed.safetensors"));
    const Status status = Checkpoint::open(folder.path()).status();
    CHECK(status.code() == Code::not_found);
    CHECK(mentions(status, "2 of 4 files"));
    CHECK(mentions(status, "'model-00002-of-00004.safetensors', 'model-00004-of-00004.safetensors'"));
  }

  TEST_CASE("LOAD-08: tensors beyond 2 and 4 GiB") {
    test::TempFolder folder;
    const uint64_t far = uint64_t(5) << 30, size = uint64_t(6) << 30;
    const std::string header =
        object({entry("a", "U8", "[2147483649]", 0, 2147483649), entry("b", "I32", "[2]", far, far + 8)});
    const std::string path = folder.write("t.safetensors", length_prefix(header.size()) + header);
    const int fd = open(path.c_str(), O_WRONLY);
    const int32_t values[] = {17, -4};
    const bool is_sparse = ftruncate(fd, off_t(size)) == 0 &&
                           pwrite(fd, values, 8, off_t(8 + header.size() + far)) == 8 &&
                           pwrite(fd, "\x2a", 1, off_t(8 + header.size() + 2147483648)) == 1;
    close(fd);
    if (!is_sparse) return;  // a file system without files of that size
    const auto checkpoint = Checkpoint::open_file(path).value();
    CHECK(std::memcmp(checkpoint->find("b")->data, values, 8) == 0);
    CHECK(checkpoint->find("a")->data[2147483648] == 0x2a);
  }

  TEST_CASE("LOAD-09: a snapshot of links to blobs is a normal folder") {
    test::TempFolder cache;
    cache.write("blobs/1", byte_tensors({"a"}));
    cache.write("blobs/2", byte_tensors({"b"}));
    cache.write("blobs/3", index_of({{"a", "one.safetensors"}, {"b", "two.safetensors"}}));
    cache.link("../../blobs/1", "snapshots/x/one.safetensors");
    cache.link(cache.file("blobs/2"), "snapshots/x/two.safetensors");
    cache.link("../../blobs/3", std::string("snapshots/x/") + kIndex);
    CHECK(Checkpoint::open(cache.file("snapshots/x")).value()->num_tensors() == 2);

    std::filesystem::remove(cache.file("snapshots/x/two.safetensors"));
    cache.link("two.safetensors", "snapshots/x/two.safetensors");
    CHECK(Checkpoint::open(cache.file("snapshots/x")).status().code() == Code::io);
    std::filesystem::remove(cache.file("snapshots/x/two.safetensors"));
    cache.link("/dev/zero", "snapshots/x/two.safetensors");
    CHECK(Checkpoint::open(cache.file("snapshots/x")).status().code() == Code::io);
  }

  TEST_CASE("LOAD-12: a dangling link, an empty shard and an empty index name their path") {
    test::TempFolder folder;
    folder.write(kIndex, index_of({{"a", "one.safetensors"}}));
    folder.link("nowhere", "one.safetensors");
    CHECK(Checkpoint::open(folder.path()).status().code() == Code::not_found);
    CHECK(mentions(Checkpoint::open(folder.path()).status(), folder.file("one.safetensors")));
    std::filesystem::remove(folder.file("one.safetensors"));
    folder.write("one.safetensors", "");
    CHECK(Checkpoint::open(folder.path()).status().code() == Code::corrupt);
    CHECK(mentions(Checkpoint::open(folder.path()).status(), folder.file("one.safetensors")));
    folder.write(kIndex, "");
    CHECK(Checkpoint::open(folder.path()).status().code() == Code::json);
    CHECK(mentions(Checkpoint::open(folder.path()).status(), folder.file(kIndex)));
  }

  TEST_CASE("LOAD-13: index and files must name the same tensors") {
    test::TempFolder folder;
    folder.write("one.safetensors", byte_tensors({"a", "b"}));
    folder.write("two.safetensors", byte_tensors({"c"}));
    const auto open_with = [&](const std::vector<std::pair<std::string, std::string>>& weight_map) {
      folder.write(kIndex, index_of(weight_map));
      return Checkpoint::open(folder.path()).status();
    };
    const std::pair<std::string, std::string> a{"a", "one.safetensors"}, b{"b", "one.safetensors"},
        c{"c", "two.safetensors"};
    CHECK(open_with({a, b, c}).is_ok());

    const Status extra = open_with({a, b, c, {"d", "two.safetensors"}});
    CHECK(extra.code() == Code::model);
    CHECK(mentions(extra, "two.safetensors: 1 tensors"));
    CHECK(mentions(extra, "'d'"));
    const Status absent = open_with({a, c});
    CHECK(absent.code() == Code::model);
    CHECK(mentions(absent, "'b'"));
    CHECK(open_with({a, {"renamed", "one.safetensors"}, c}).code() == Code::model);
    CHECK(open_with({a, {"b", "two.safetensors"}, c}).code() == Code::model);
    CHECK(open_with({a, b, c, {"d", "never.safetensors"}}).code() == Code::not_found);
    CHECK(open_with({}).code() == Code::model);

    folder.write("two.safetensors", byte_tensors({"c", "a"}));
    const Status twice = open_with({a, b, c});
    CHECK(twice.code() == Code::corrupt);
    CHECK(mentions(twice, "'a' is in"));
    CHECK(mentions(twice, "one.safetensors and in"));
  }

  TEST_CASE("an index cannot point out of its folder") {
    test::TempFolder folder;
    folder.write("x.safetensors", byte_tensors({"a"}));
    folder.write("model/here.safetensors", byte_tensors({"a"}));
    for (const std::string& name :
         {std::string("../x.safetensors"), folder.file("x.safetensors"), std::string(".."), std::string("."),
          std::string(""), std::string("sub/x"), std::string("..\\\\x"), std::string("C:x"),
          std::string("x\\u0000y"), std::string(256, 'x')}) {
      folder.write(std::string("model/") + kIndex, index_of({{"a", name}}));
      CHECK_MESSAGE(Checkpoint::open(folder.file("model")).status().code() == Code::model, name);
    }
    for (const char* json : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 3}})"}) {
      folder.write(std::string("model/") + kIndex, json);
      CHECK(Checkpoint::open(folder.file("model")).status().code() == Code::model);
    }
  }

  TEST_CASE("half a million tensors open in seconds") {
    test::TempFolder folder;
    constexpr int kTensors = test::kSanitized ? 50'000 : 500'000, kFiles = 4;
    std::string index = "{\"weight_map\":{";
    for (int f = 0; f < kFiles; ++f) {
      std::string header = "{";
      for (int i = f; i < kTensors; i += kFiles) {
        const std::string name = concat("model.layers.", i / 1000, ".experts.", i % 1000, ".weight");
        header += concat(i > f ? "," : "",
                         entry(name, "U8", "[1]", uint64_t(i / kFiles), uint64_t(i / kFiles + 1)));
        index += concat(i ? ",\"" : "\"", name, "\":\"", f, ".safetensors\"");
      }
      folder.write(concat(f, ".safetensors"), safetensors(header + "}", kTensors / kFiles));
    }
    folder.write(kIndex, index + "}}");
    const double begin = test::cpu_seconds();
    const auto checkpoint = Checkpoint::open(folder.path());
    REQUIRE_MESSAGE(checkpoint.is_ok(), checkpoint.status().message());
    CHECK(checkpoint.value()->num_tensors() == kTensors);
    CHECK(test::cpu_seconds() - begin < 30);  // 2 s
  }
}

}  // namespace
}  // namespace dsa
