// dsa_bench: how fast this machine runs the engine, beside what the machine itself can do.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/bench.h"

namespace {

struct Command {
  const char* name;
  int (*run)(int threads);
  const char* help;
};

constexpr Command kCommands[] = {
    {"kernels", dsa::bench::kernels_bench,
     "the large operators, beside memory bandwidth and peak arithmetic"},
    {"model", dsa::bench::model_bench, "decode and prefill of a synthetic model"},
    {"vision", dsa::bench::vision_bench, "pictures through a few blocks of K3's vision tower"},
};

}  // namespace

int main(int argc, char** argv) {
  int threads = int(std::thread::hardware_concurrency());
  const Command* command = nullptr;
  bool wrong = false;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = atoi(argv[++i]);
      continue;
    }
    const Command* found = nullptr;
    for (const Command& c : kCommands)
      if (strcmp(argv[i], c.name) == 0) found = &c;
    wrong |= found == nullptr || command != nullptr;
    command = found;
  }
  if (!wrong && threads >= 1) {
    int status = 0;
    for (const Command& c : kCommands)
      if (command == nullptr || command == &c) status |= c.run(threads);
    return status;
  }
  fprintf(stderr, "usage: dsa_bench [COMMAND] [--threads N]      all commands if none is named\n");
  for (const Command& c : kCommands) fprintf(stderr, "  %-8s %s\n", c.name, c.help);
  return 2;
}
