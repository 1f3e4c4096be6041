#include "io/mapped_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "support/temp_folder.h"

namespace dsa {
namespace {

Code code_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (file.is_ok()) return Code::ok;
  CHECK(file.status().message().find(path) != std::string::npos);
  return file.status().code();
}

TEST_SUITE("io/mapped_file") {
  TEST_CASE("a file is there byte for byte, and as long as anybody holds it") {
    test::TempFolder folder;
    const std::string content("a\0b\n", 4);
    std::shared_ptr<const MappedFile> file = MappedFile::open(folder.write("x", content)).value();
    unlink(folder.file("x").c_str());
    CHECK(file->text() == content);
    CHECK(file->path() == folder.file("x"));
    CHECK(MappedFile::open(folder.write("empty", "")).value()->size() == 0);
  }

  TEST_CASE("what is no readable file is a typed error with the path") {
    test::TempFolder folder;
    folder.write("file", "x");
    CHECK(code_of(folder.file("missing")) == Code::not_found);
    CHECK(code_of(folder.file("file/below")) == Code::not_found);
    CHECK(code_of("") == Code::not_found);
    CHECK(code_of(folder.path()) == Code::io);
    mkfifo(folder.file("pipe").c_str(), 0600);
    CHECK(code_of(folder.file("pipe")) == Code::io);  // and does not wait for a writer
    if (geteuid() != 0) {
      chmod(folder.file("file").c_str(), 0);
      CHECK(code_of(folder.file("file")) == Code::access);
    }
    CHECK(MappedFile::open(std::string("a\0b", 3)).status().code() == Code::argument);
    CHECK(MappedFile::open(folder.file("missing")).status().info().native == ENOENT);
  }

  TEST_CASE("LOAD-07: folders in Cyrillic, CJK and emoji, and a path above 260 characters") {
    test::TempFolder folder;
    for (const std::string& name : {std::string("Модели"), std::string("模型"), std::string("🦊 fox"),
                                    std::string(200, 'd') + "/" + std::string(200, 'e')})
      CHECK(code_of(folder.write(name + "/x", "content")) == Code::ok);
  }

  TEST_CASE("LOAD-09: links lead where they lead; loops and devices are typed errors") {
    test::TempFolder cache, elsewhere;
    cache.write("blobs/abc", "weights");
    cache.link("../../blobs/abc", "snapshots/1/relative");
    cache.link(elsewhere.write("blob", "more"), "snapshots/1/absolute");
    CHECK(MappedFile::open(cache.file("snapshots/1/relative")).value()->text() == "weights");
    CHECK(MappedFile::open(cache.file("snapshots/1/absolute")).value()->text() == "more");
    cache.link("loop-b", "loop-a");
    cache.link("loop-a", "loop-b");
    CHECK(code_of(cache.file("loop-a")) == Code::io);
    cache.link("/dev/zero", "device");
    CHECK(code_of(cache.file("device")) == Code::io);
  }

  TEST_CASE("LOAD-12: a dangling link is not found, though its name is there") {
    test::TempFolder folder;
    folder.link("nowhere", "link");
    CHECK(path_exists(folder.file("link")));
    CHECK(code_of(folder.file("link")) == Code::not_found);
    CHECK(MappedFile::open(folder.file("link")).status().message().find("link to something") !=
          std::string::npos);
  }

  TEST_CASE("a file is read whole, within its limit, and refused as it is when mapped") {
    test::TempFolder folder;
    const std::string path = folder.write("x", std::string("a\0b", 3));
    CHECK(read_file(path, 3).value() == std::vector<uint8_t>{'a', 0, 'b'});
    CHECK(read_file(folder.write("empty", ""), 0).value().empty());
    const Status status = read_file(path, 2).status();
    CHECK(status.code() == Code::limit);
    CHECK(status.info().needed == 3);
    CHECK(status.info().available == 2);
    CHECK(read_file(folder.file("missing"), 3).status().code() == Code::not_found);
    CHECK(read_file(folder.path(), 3).status().code() == Code::io);
    CHECK(read_file(std::string("a\0b", 3), 3).status().code() == Code::argument);
  }

  TEST_CASE("paths are joined with one separator") {
    CHECK(join_path("a", "b") == "a/b");
    CHECK(join_path("a/", "b") == "a/b");
    CHECK(join_path("/", "b") == "/b");
    CHECK(join_path("", "b") == "b");
  }
}

}  // namespace
}  // namespace dsa
