#include "backend/device.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "backend/cuda/cuda_module.h"

namespace dsa {
namespace {

bool is_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Where the code that asks lies; empty if nobody knows.
std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&list_gpus), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  if (const size_t slash = path.find_last_of('/'); slash != std::string::npos)
    return path.substr(0, slash + 1);
  char program[4096];  // found through PATH
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program);
  const std::string found(program, n > 0 ? size_t(n) : 0);
  return found.substr(0, found.find_last_of('/') + 1);
}

// Empty if there is none. Programs of a build tree find it in lib/ beside their bin/.
std::string find_module(const std::string& module_dir) {
  if (!module_dir.empty()) {
    const std::string path = module_dir + "/" + kCudaModuleFile;
    return is_file(path) ? path : std::string();
  }
  const std::string folder = own_folder();
  if (folder.empty()) return {};
  for (const char* from_folder : {"", "../lib/"})
    if (const std::string path = folder + from_folder + kCudaModuleFile; is_file(path)) return path;
  return {};
}

// The module, which stays loaded: what it allocated may live as long as the process.
Result<const CudaModule*> load_module(const std::string& path) {
  static std::mutex& mutex = *new std::mutex();
  const std::lock_guard lock(mutex);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return error(Code::backend, "the CUDA module cannot be loaded: ", reason != nullptr ? reason : path);
  }
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
  const CudaModule* module = entry != nullptr ? entry() : nullptr;
  if (module == nullptr || std::strcmp(module->build, cuda_module_build()) != 0)
    return error(Code::backend, path, " is of build '", module != nullptr ? module->build : "unknown",
                 "', expected '", cuda_module_build(), "'");
  return module;
}

}  // namespace

std::vector<DeviceInfo> list_gpus(const std::string& module_dir) {
  const std::string path = find_module(module_dir);
  if (path.empty()) return {};
  const auto module = load_module(path);
  if (module.is_ok()) return module.value()->list();
  DeviceInfo none;
  none.id = "cuda";
  none.name = "CUDA";
  none.why_not = module.status();
  return {none};
}

Result<std::unique_ptr<Backend>> create_gpu_backend(const std::string& id, const std::string& module_dir) {
  const std::string path = find_module(module_dir);
  if (path.empty())
    return error(Code::backend, "this installation has no ", kCudaModuleFile, ", which device '", id,
                 "' needs");
  DSA_ASSIGN(const CudaModule* module, load_module(path));
  return module->create(id);
}

}  // namespace dsa
