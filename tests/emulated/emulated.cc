// tests/emulated/emulated.cc: the threads of a block as fibers, and where they meet.
#include "tests/emulated/emulated.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

dim3 threadIdx, blockIdx, gridDim, blockDim;

#if defined(__x86_64__)
// Saves the registers that a call keeps and the stack pointer, and takes those that lie at `to`: swapcontext without
// its system call.
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
emulated_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
#endif

namespace emulated {

void* dynamic_shared = nullptr;

namespace {

constexpr size_t kStackBytes = 128 << 10;
enum class State { ready, at_warp, at_block, ended };

struct Copy {
  void* to;
  const void* from;
  bool exists;
  int bytes, group;
};

#if defined(__x86_64__)
using Context = void*;  // the stack pointer
void switch_to(Context& from, Context& to) { emulated_switch(&from, to); }
void prepare(Context& context, char* stack, void (*begin)()) {
  auto** top = reinterpret_cast<void**>((uintptr_t(stack) + kStackBytes) / 16 * 16);
  *--top = nullptr;  // `begin` never returns; the stack is where a call would leave it
  *--top = reinterpret_cast<void*>(begin);
  top -= 6;
  std::fill(top, top + 6, nullptr);
  context = top;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }
void prepare(Context& context, char* stack, void (*begin)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack, context.uc_stack.ss_size = kStackBytes, context.uc_link = nullptr;
  makecontext(&context, begin, 0);
}
#endif

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  State state = State::ended;
  dim3 index;
  uint64_t value = 0;  // given to the warp
  bool flag = false;   // given to the block
  std::vector<Copy> copies;
  int copy_group = 0;
};

std::vector<std::unique_ptr<Fiber>> fibers;
Context scheduler;
Fiber* current = nullptr;
size_t current_at = 0, threads = 0;
const std::function<void()>* body_of_launch = nullptr;
// What the lanes of a warp gave when they last met. Nobody reads it later than that: all meet again first.
struct Met {
  uint64_t values[32];
  unsigned lanes;
};
std::vector<Met> met;
bool any = false;

void begin_fiber() {
  (*body_of_launch)();
  current->state = State::ended;
  switch_to(current->context, scheduler);
}

void resume(size_t i) {
  current = fibers[i].get(), current_at = i;
  threadIdx = current->index;
  switch_to(scheduler, current->context);
}

void pause(State state) {
  current->state = state;
  switch_to(current->context, scheduler);
}

// All threads of [begin, end) that have not ended wait in `state`, and there are some.
bool all_wait(size_t begin, size_t end, State state) {
  bool some = false;
  for (size_t i = begin; i < end; ++i) {
    if (fibers[i]->state == State::ended) continue;
    if (fibers[i]->state != state) return false;
    some = true;
  }
  return some;
}
void remember(size_t begin, size_t end) {
  Met& m = met[begin / 32];
  m = {};
  for (size_t i = begin; i < end; ++i)
    if (fibers[i]->state != State::ended)
      m.values[i - begin] = fibers[i]->value, m.lanes |= 1u << (i - begin);
}
void release(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i)
    if (fibers[i]->state != State::ended) fibers[i]->state = State::ready;
}

bool run_block(bool backward) {
  for (;;) {
    bool moved = false;
    for (size_t begin = 0; begin < threads; begin += 32) {
      const size_t end = begin + 32 < threads ? begin + 32 : threads;
      for (;;) {
        for (size_t n = 0; n < end - begin; ++n) {
          const size_t i = backward ? end - 1 - n : begin + n;
          if (fibers[i]->state == State::ready) resume(i), moved = true;
        }
        if (!all_wait(begin, end, State::at_warp)) break;
        remember(begin, end), release(begin, end), moved = true;
      }
    }
    if (all_wait(0, threads, State::at_block)) {
      any = false;
      for (size_t i = 0; i < threads; ++i) any |= fibers[i]->state != State::ended && fibers[i]->flag;
      release(0, threads), moved = true;
    }
    bool ended = true;
    for (size_t i = 0; i < threads; ++i) ended &= fibers[i]->state == State::ended;
    if (ended) return true;
    if (!moved) return false;
  }
}

}  // namespace

bool run(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()>& body) {
  threads = size_t(size.x) * size.y * size.z;
  while (fibers.size() < threads) fibers.push_back(std::make_unique<Fiber>());
  met.resize((threads + 31) / 32);
  std::vector<uint64_t> shared(shared_bytes / 8 + 4);
  dynamic_shared = reinterpret_cast<void*>((uintptr_t(shared.data()) + 15) / 16 * 16);
  gridDim = grid, blockDim = size, body_of_launch = &body;
  bool backward = false;
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x, backward = !backward) {
        blockIdx = dim3(x, y, z);
        std::fill(shared.begin(), shared.end(), ~uint64_t{0});
        for (size_t i = 0; i < threads; ++i) {
          Fiber& f = *fibers[i];
          f.state = State::ready, f.copies.clear(), f.copy_group = 0;
          f.index = dim3(unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y));
          prepare(f.context, f.stack.get(), begin_fiber);
        }
        if (!run_block(backward)) {
          fprintf(stderr, "block (%u, %u, %u): some threads miss a barrier that others wait at\n", x, y, z);
          return false;
        }
      }
  return true;
}

const uint64_t* exchange(uint64_t value) {
  const size_t warp = current_at / 32;
  current->value = value;
  pause(State::at_warp);
  return met[warp].values;
}
unsigned live_lanes() { return met[current_at / 32].lanes; }
void wait_for_block() { pause(State::at_block); }
bool any_of_block(bool value) {
  current->flag = value;
  pause(State::at_block);
  return any;
}

void copy_later(void* to, const void* from, bool exists, int bytes) {
  current->copies.push_back({to, from, exists, bytes, current->copy_group});
}
void commit_copies() { ++current->copy_group; }
void wait_for_copies(int left) {
  std::erase_if(current->copies, [&](const Copy& copy) {
    if (copy.group >= current->copy_group - left) return false;
    copy.exists ? memcpy(copy.to, copy.from, size_t(copy.bytes)) : memset(copy.to, 0, size_t(copy.bytes));
    return true;
  });
}

}  // namespace emulated
