// dsa_bench: how fast this machine runs the engine, beside what the machine itself can do.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/model_bench.h"

namespace dsa::bench {
namespace {

Status run_model(int threads, const ModelBenchOptions& options) {
  DSA_ASSIGN(const auto backend, create_cpu_backend(threads));
  HostClock clock;
  Queue& queue = backend->queue();
  printf("%d threads\n", threads);
  return model_bench(
      {*backend,
       clock,
       {},
       {{"a read of a fresh buffer", [&](const SyntheticModel&) { return read_bandwidth(queue); }},
        {"a read of the mapping of the weights",
         [&](const SyntheticModel& model) {
           return read_bandwidth(queue, model.data(), model.checkpoint->files()[0]->size());
         }}}},
      options);
}

int model_command(int threads, int argc, char** argv) {
  ModelBenchOptions options{.shape = "small", .batches = {1}, .contexts = {512}, .prompts = {512}};
  if (!read_model_options(argc, argv, options)) return 2;
  const Status status = run_model(threads, options);
  if (!status.is_ok()) fprintf(stderr, "dsa_bench: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}

struct Command {
  const char* name;
  int (*run)(int threads, int argc, char** argv);
  bool has_options;
  const char* help;
};

constexpr Command kCommands[] = {
    {"kernels", [](int threads, int, char**) { return kernels_bench(threads); }, false,
     "the large operators, beside memory bandwidth and peak arithmetic"},
    {"model", model_command, true, "decode and prefill of a synthetic model; has options of its own"},
    {"vision", [](int threads, int, char**) { return vision_bench(threads); }, false,
     "pictures through a few blocks of K3's vision tower"},
};

}  // namespace
}  // namespace dsa::bench

int main(int argc, char** argv) {
  using namespace dsa::bench;
  int threads = int(std::thread::hardware_concurrency());
  const Command* command = nullptr;
  bool wrong = false;
  std::vector<char*> options;  // of the command
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = atoi(argv[++i]);
      continue;
    }
    const Command* found = nullptr;
    for (const Command& c : kCommands)
      if (strcmp(argv[i], c.name) == 0) found = &c;
    if (found == nullptr && command != nullptr && command->has_options) {
      options.push_back(argv[i]);
      continue;
    }
    wrong |= found == nullptr || command != nullptr;
    command = found;
  }
  if (!wrong && threads >= 1) {
    int status = 0;
    for (const Command& c : kCommands)
      if (command == nullptr || command == &c) status |= c.run(threads, int(options.size()), options.data());
    return status;
  }
  fprintf(stderr, "usage: dsa_bench [COMMAND] [--threads N]      all commands if none is named\n");
  for (const Command& c : kCommands) fprintf(stderr, "  %-8s %s\n", c.name, c.help);
  return 2;
}
