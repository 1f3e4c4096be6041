// tools/dsa_inspect.cc: what a model needs, and what this build and this machine have for it.
#include <cstdio>
#include <cstring>
#include <exception>

#include "dsa_sdk.h"
#include "engine/plan.h"
#include "io/json.h"

using namespace dsa;

namespace {

constexpr const char* kUsage =
    "Usage: dsa_inspect [--json] PATH\n"
    "\n"
    "PATH is a model folder, complete or not, or a config.json alone. Prints the family, the kernel of "
    "every\n"
    "operator that the model needs, which tensors are there, parameters, bytes, precision, and the context "
    "that\n"
    "fits the memory of this machine. Reads no weights.\n"
    "\n"
    "Exit status: 0 nothing is missing, 1 PATH cannot be read as a model, 2 wrong arguments, 3 tensors or "
    "kernels\n"
    "are missing.\n";

int fail(const Status& status, bool json) {
  if (json) {
    Json report = {{"error",
                    {{"code", int(status.code())},
                     {"name", dsa_status_name(int32_t(status.code()))},
                     {"message", status.message()}}}};
    const JsonRelease release(report);
    std::printf("%s\n", report.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::fprintf(stderr, "%s: %s\n", dsa_status_name(int32_t(status.code())), status.message().c_str());
  }
  return 1;
}

int inspect(const char* path, bool json) {
  const auto plan = Plan::of_path(path, PlanRequest(), Machine::here());
  if (!plan.is_ok()) return fail(plan.status(), json);
  const std::string report = json ? plan.value()->json() + "\n" : plan.value()->text();
  std::fwrite(report.data(), 1, report.size(), stdout);
  return plan.value()->is_complete() ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = nullptr;
  bool json = false, usage = argc < 2;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      json = true;
    else if (argv[i][0] == '-' || path != nullptr)
      usage = true;
    else
      path = argv[i];
  }
  if (usage || path == nullptr) return std::fputs(kUsage, stderr), 2;
  try {
    return inspect(path, json);
  } catch (const std::exception& e) {
    return fail(error(Code::out_of_memory, e.what()), json);
  }
}
