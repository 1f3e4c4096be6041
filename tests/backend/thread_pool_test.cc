// Every item once, on every number of threads, through start, sleep, contention and stop.
#include "backend/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {
std::atomic<int> allocations{0};
}  // namespace

// Not inline: the compiler warns when it sees free() meet operator new.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace dsa {
namespace {

// How often each of `n` items was called in one parallel_for.
std::vector<int> counts(Queue& queue, int64_t n) {
  std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
  queue.parallel_for(n, [&](int64_t i) { calls[size_t(i)].fetch_add(1, std::memory_order_relaxed); });
  return {calls.begin(), calls.end()};
}

}  // namespace

TEST_SUITE("backend/thread_pool") {
  TEST_CASE("every item is called exactly once") {
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      CHECK(pool.threads() == threads);
      for (int64_t n : {0, 1, 2, 3, 7, 64, 1000, 100003}) {
        CAPTURE(threads);
        CAPTURE(n);
        CHECK(counts(pool, n) == std::vector<int>(size_t(n), 1));
      }
    }
  }

  TEST_CASE("plain memory written by an item is visible when the call returns") {
    ThreadPool pool(4);
    std::vector<int64_t> squares(257);
    for (int64_t round = 0; round < 2000; ++round) {
      pool.parallel_for(257, [&](int64_t i) { squares[size_t(i)] = i * i + round; });
      int64_t wrong = 0;
      for (int64_t i = 0; i < 257; ++i) wrong += squares[size_t(i)] != i * i + round;
      REQUIRE(wrong == 0);
    }
  }

  TEST_CASE("threads that sleep wake up for the next job") {
    ThreadPool pool(3);
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than they spin
      CHECK(counts(pool, 100) == std::vector<int>(100, 1));
    }
  }

  TEST_CASE("the workers do take part") {
    ThreadPool pool(2);
    std::atomic<bool> other{false};
    const std::thread::id caller = std::this_thread::get_id();
    pool.parallel_for(2, [&](int64_t) {
      if (std::this_thread::get_id() != caller) other = true;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!other && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    });
    CHECK(other);
  }

  TEST_CASE("a second caller waits for the first") {
    ThreadPool pool(3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c)
      callers.emplace_back([&] {
        for (int round = 0; round < 200; ++round) wrong += counts(pool, 50) != std::vector<int>(50, 1);
      });
    for (std::thread& caller : callers) caller.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("a call from inside a job runs where it is made") {
    ThreadPool pool(3);
    std::vector<std::atomic<int>> calls(10 * 20);
    std::atomic<int> moved{0};
    pool.parallel_for(10, [&](int64_t i) {
      const std::thread::id here = std::this_thread::get_id();
      pool.parallel_for(20, [&](int64_t j) {
        ++calls[size_t(i * 20 + j)];
        moved += std::this_thread::get_id() != here;
      });
    });
    CHECK(std::vector<int>(calls.begin(), calls.end()) == std::vector<int>(10 * 20, 1));
    CHECK(moved == 0);
  }

  TEST_CASE("a job allocates nothing") {
    ThreadPool pool(2);
    std::atomic<int64_t> sum{0};
    pool.parallel_for(100, [&](int64_t i) { sum += i; });
    const int before = allocations;
    for (int round = 0; round < 100; ++round) pool.parallel_for(100, [&](int64_t i) { sum += i; });
    CHECK(allocations == before);
    CHECK(sum == 101 * 4950);
  }

  TEST_CASE("workers are named, block all signals and report start and end") {
    std::atomic<int> starts{0}, ends{0}, named{0}, deaf{0};
    {
      ThreadPool pool(3, [&](ThreadEvent event) {
        (event == ThreadEvent::start ? starts : ends)++;
        char name[16] = {};
        pthread_getname_np(pthread_self(), name, sizeof name);
        named += std::string(name) == "dsa-worker";
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        deaf += sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1);
      });
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      CHECK_FALSE(sigismember(&mask, SIGUSR1));  // the caller's mask is as it was
    }
    CHECK(starts == 2);
    CHECK(ends == 2);
    CHECK(named == 4);
    CHECK(deaf == 4);
  }

  TEST_CASE("a pool that never ran stops at once") {
    for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  }
}

}  // namespace dsa
