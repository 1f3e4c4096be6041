#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "backend/device.h"
#include "state/page_pool.h"
#include "state/sequence_state.h"
#include "tests/support/guarded_backend.h"
#include "tests/support/temp_folder.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("backend/storage") {
  TEST_CASE("a mirror of the host is one piece, that of a device two with copies between them") {
    GuardedBackend backend;
    for (Storage* storage : {&host_storage(), static_cast<Storage*>(&backend.storage())}) {
      auto mirror = storage->allocate_mirror(16, "a test");
      REQUIRE(mirror.is_ok());
      CHECK((mirror.value().host == mirror.value().device) == storage->is_host());
      char* host = static_cast<char*>(mirror.value().host.get());
      std::memcpy(host, "0123456789abcdef", 16);
      storage->upload(mirror.value(), 0, 16);
      storage->copy(mirror.value().device.get(), static_cast<char*>(mirror.value().device.get()) + 8, 4);
      storage->download(mirror.value(), 0, 16);
      REQUIRE(storage->finish().is_ok());
      CHECK(std::string(host, 16) == "89ab456789abcdef");
      storage->clear(mirror.value().device.get(), 2);
      char read[3] = {1, 1, 1};
      REQUIRE(storage->read(read, mirror.value().device.get(), 3).is_ok());
      CHECK(std::string(read, 3) == std::string("\0\0a", 3));
    }
  }

  TEST_CASE("many writes at once bring every byte to its place, and stop when they are told to") {
    GuardedBackend backend;
    constexpr size_t kSize = size_t(40) << 20;
    const std::vector<char> from(kSize, 'x');
    for (Storage* storage : {&host_storage(), static_cast<Storage*>(&backend.storage())}) {
      const Memory memory = storage->allocate(kSize, "a test").value();
      char* to = static_cast<char*>(memory.get());
      storage->clear(to, kSize);
      const Write writes[] = {
          {to, from.data(), 3}, {to + 5, from.data() + 5, 0}, {to + 7, from.data(), kSize - 7}};
      std::vector<uint64_t> asked;
      REQUIRE(storage->write_all(writes, [&](uint64_t done) { return asked.push_back(done), true; }).is_ok());
      CHECK(asked.front() == 0);
      for (size_t i = 1; i < asked.size(); ++i) {
        CHECK(asked[i] > asked[i - 1]);
        CHECK(asked[i] - asked[i - 1] <= Storage::kBytesBetween);
      }
      std::vector<char> read(kSize), expected = from;
      expected[3] = expected[4] = expected[5] = expected[6] = 0;
      REQUIRE(storage->read(read.data(), to, kSize).is_ok());
      CHECK(read == expected);

      storage->clear(to, kSize);
      CHECK(storage->write_all(writes, [](uint64_t done) { return done < 3; }).is_ok());
      REQUIRE(storage->read(read.data(), to, kSize).is_ok());
      CHECK(read.back() == 0);
    }
  }

  TEST_CASE("memory counts while somebody owns it") {
    GuardedBackend backend;
    for (Storage* storage : {&host_storage(), static_cast<Storage*>(&backend.storage())}) {
      const uint64_t before = storage->allocated_bytes();
      {
        auto memory = storage->allocate(5000, "a test");
        REQUIRE(memory.is_ok());
        CHECK(reinterpret_cast<uintptr_t>(memory.value().get()) % kStorageAlignment == 0);
        CHECK(storage->allocated_bytes() >= before + 5000);
      }
      CHECK(storage->allocated_bytes() == before);
    }
  }

  TEST_CASE("more than there is is a typed error with the amount") {
    const size_t bytes = size_t(1) << 60;
    const auto memory = host_storage().allocate(bytes, "a test");
    REQUIRE_FALSE(memory.is_ok());
    CHECK(memory.status().code() == Code::out_of_memory);
    CHECK(memory.status().info().needed == bytes);
    CHECK(memory.status().message().find("a test") != std::string::npos);
  }

  TEST_CASE("states that were allocated together are the only ones, come back, and may outlive the pool") {
    GuardedBackend backend;
    StateLayout layout;
    layout.latent_layers = 1, layout.latent_dim = 3;
    layout.kda_layers = 2, layout.recurrent_floats = 5, layout.conv_floats = 2;
    auto pool = PagePool::create(layout, 4, 3, backend.storage());
    REQUIRE(pool.is_ok());
    const uint64_t bytes = backend.storage().allocated_bytes();
    const int32_t tokens[] = {1, 2};
    Mark mark;
    {
      SequenceState state(*pool.value(), 10);
      StepPlan plan;
      plan.sequences.push_back({&state, tokens, 2, false});
      {
        auto pages = pool.value()->reserve(plan);
        REQUIRE(pages.is_ok());
        float written[7] = {1, 2, 3, 4, 5, 6, 7}, read[7];
        REQUIRE(backend.storage().write(state.next_recurrent(1), written, sizeof written).is_ok());
        pages.value().commit();
        auto made = state.mark();  // the third state
        REQUIRE(made.is_ok());
        mark = std::move(made).value();
        CHECK(backend.storage().allocated_bytes() == bytes);

        REQUIRE(backend.storage().read(read, state.recurrent(1), sizeof read).is_ok());
        CHECK(std::memcmp(read, written, sizeof read) == 0);
        const float others[7] = {};
        REQUIRE(
            backend.storage().write(const_cast<float*>(state.recurrent(1)), others, sizeof others).is_ok());
        state.rewind(mark);
        REQUIRE(backend.storage().read(read, state.recurrent(1), sizeof read).is_ok());
        CHECK(std::memcmp(read, written, sizeof read) == 0);
      }
      const auto more = state.mark();  // a fourth one
      REQUIRE_FALSE(more.is_ok());
      CHECK(more.status().code() == Code::out_of_device_memory);
      CHECK(more.status().info().needed == layout.state_bytes());
      mark = Mark();
      CHECK(state.mark().is_ok());
      auto again = state.mark();
      REQUIRE(again.is_ok());
      mark = std::move(again).value();
    }
    CHECK(backend.storage().allocated_bytes() == bytes);
    pool.value().reset();
    CHECK(backend.storage().allocated_bytes() > 0);  // the mark holds on to the states
    mark = Mark();
    CHECK(backend.storage().allocated_bytes() == 0);
  }
}

TEST_SUITE("backend/device") {
  TEST_CASE("GPU-02 without the module there is no GPU, and asking for one says what is missing") {
    const TempFolder folder;
    CHECK(list_gpus(folder.path()).empty());
    const auto backend = create_gpu_backend("cuda", folder.path());
    REQUIRE_FALSE(backend.is_ok());
    CHECK(backend.status().code() == Code::backend);
    CHECK(backend.status().message().find("libdsa_sdk_cuda.so") != std::string::npos);
  }

  TEST_CASE("GPU-02 a module that cannot be loaded is one unusable device with the reason") {
    const TempFolder folder;
    folder.write("libdsa_sdk_cuda.so", "not a library");
    const auto devices = list_gpus(folder.path());
    REQUIRE(devices.size() == 1);
    CHECK(devices[0].id == "cuda");
    CHECK(devices[0].why_not.code() == Code::backend);
    CHECK(create_gpu_backend("cuda:0", folder.path()).status().code() == Code::backend);
  }

  TEST_CASE(
      "GPU-02 every device of this build is usable or says why not, and an unusable one cannot be had") {
    for (const DeviceInfo& device : list_gpus("")) {
      CHECK(device.id.starts_with("cuda"));
      if (device.why_not.is_ok()) continue;
      CHECK_FALSE(device.why_not.message().empty());
      CHECK(create_gpu_backend(device.id, "").status().code() == device.why_not.code());
    }
  }
}
