// tools/dsa_convert.cc: dsa_convert IN OUT [options]: writes the model folder IN again as OUT, its routed experts as MXFP4.
//
//   --threads N  threads that round (default: all cores)
//   --quiet      no line for each tensor
//   --json       the errors of all tensors as JSON, as OUT/dsa_convert.json holds them, instead of lines
//
// A run that was stopped goes on where it stopped when it is given the same folders again. Exit status: 0 if OUT is
// finished, 1 if not, 2 if the arguments are wrong.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "dsa_sdk.h"
#include "io/json.h"
#include "model/convert.h"

namespace dsa {
namespace {

struct Options {
  std::string source, target;
  int threads = 0;
  bool quiet = false, json = false;
};

bool parse(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json") {
      out.json = true;
    } else if (arg == "--quiet") {
      out.quiet = true;
    } else if (arg == "--threads" && i + 1 < argc) {
      out.threads = atoi(argv[++i]);
      if (out.threads < 1 || out.threads > 1024) return false;
    } else if (arg.starts_with("-")) {
      return false;
    } else if (out.source.empty()) {
      out.source = arg;
    } else if (out.target.empty()) {
      out.target = arg;
    } else {
      return false;
    }
  }
  return !out.target.empty();
}

std::string figures(const RoundingErrors& e) {
  char text[128];
  snprintf(text, sizeof text, "relative RMS error %.4f, largest error %.3g, saturated %.3f %%",
           e.relative_rms(), double(e.error_max), 100 * e.saturated_share());
  return text;
}

int fail(const Options& options, const Status& status) {
  const char* name = dsa_status_name(dsa_status(status.code()));
  if (options.json)
    printf("%s", json_to_text({{"error", name}, {"message", status.message()}}).c_str());
  else
    fprintf(stderr, "dsa_convert: %s: %s\n", name, status.message().c_str());
  return 1;
}

int convert(const Options& options) {
  ConvertOptions settings;
  settings.threads = options.threads;
  if (!options.quiet && !options.json)
    settings.on_tensor = [](const ConvertedTensor& tensor) {
      printf("%s: %s\n", tensor.name.c_str(), figures(tensor.errors).c_str());
      fflush(stdout);
      return Status::ok();
    };
  const auto result = convert_to_mxfp4(options.source, options.target, settings);
  if (!result.is_ok()) return fail(options, result.status());
  const Conversion& c = result.value();
  if (options.json) {
    fputs(c.report.c_str(), stdout);
  } else if (c.was_finished) {
    printf("%s is finished, there is nothing to do: %zu tensors are MXFP4\n", options.target.c_str(),
           c.tensors);
  } else {
    if (c.resumed > 0) printf("went on behind the %zu tensors of an earlier run\n", c.resumed);
    printf("%zu tensors: %s\n", c.tensors, figures(c.errors).c_str());
    printf("%s is finished: %.3f GB of tensors, %.3f before\n", options.target.c_str(),
           double(c.target_bytes) / 1e9, double(c.source_bytes) / 1e9);
  }
  return 0;
}

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fprintf(stderr, "usage: dsa_convert IN OUT [--threads N] [--quiet] [--json]\n");
    return 2;
  }
  try {
    return convert(options);
  } catch (const std::exception& e) {  // no memory, or no threads
    return fail(options, error(Code::out_of_memory, e.what()));
  }
}

}  // namespace
}  // namespace dsa

int main(int argc, char** argv) { return dsa::main(argc, argv); }
