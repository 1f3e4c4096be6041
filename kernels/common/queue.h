// kernels/common/queue.h: where an operator's work goes: the threads of a CPU, later the stream of a device.
#pragma once

#include <cstdint>

namespace dsa {

class Queue {
 public:
  virtual ~Queue();

  virtual int threads() const = 0;

  // Calls f(i) for every i in [0, n), on any thread, in any order; returns when all are done.
  // Allocates nothing. f must not throw.
  template <class F>
  void parallel_for(int64_t n, const F& f) {
    run(
        n, [](const void* context, int64_t i) { (*static_cast<const F*>(context))(i); }, &f);
  }

 protected:
  using Call = void (*)(const void* context, int64_t i);
  virtual void run(int64_t n, Call call, const void* context) = 0;
};

// Runs everything on the calling thread: for references and tests.
class SerialQueue final : public Queue {
 public:
  int threads() const override;

 protected:
  void run(int64_t n, Call call, const void* context) override;
};

}  // namespace dsa
