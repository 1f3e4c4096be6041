// api/handles.h: what the opaque handles are: a count of the host's references, and a share of the object.
//
// The object lives on while something of the library needs it: a session its engine, a run its session.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>

#include "api/guard.h"
#include "engine/engine.h"
#include "engine/operation.h"
#include "engine/package.h"
#include "engine/plan.h"
#include "engine/prompt.h"
#include "engine/run.h"
#include "engine/runtime.h"
#include "engine/session.h"
#include "io/picture.h"

namespace dsa::api {

template <class T>
struct Handle {
  explicit Handle(std::shared_ptr<T> object) : impl(std::move(object)) {}

  const std::shared_ptr<T> impl;
  const pid_t pid = getpid();  // a child made by fork has the memory, but not the threads
  mutable std::atomic<int32_t> references{1};
};

}  // namespace dsa::api

struct dsa_runtime : dsa::api::Handle<dsa::Runtime> {
  using Handle::Handle;
};
struct dsa_package : dsa::api::Handle<const dsa::Package> {
  using Handle::Handle;
};
struct dsa_plan : dsa::api::Handle<const dsa::Plan> {
  dsa_plan(std::shared_ptr<const dsa::Plan> plan, std::shared_ptr<const dsa::Package> of, bool budget)
      : Handle(std::move(plan)), package(std::move(of)), has_budget(budget) {}
  const std::shared_ptr<const dsa::Package> package;
  const bool has_budget;
};
struct dsa_model : dsa::api::Handle<dsa::Engine> {
  using Handle::Handle;
};
struct dsa_session : dsa::api::Handle<dsa::Session> {
  using Handle::Handle;
};
struct dsa_image : dsa::api::Handle<const dsa::Picture> {
  using Handle::Handle;
};
struct dsa_op : dsa::api::Handle<dsa::Operation> {
  using Handle::Handle;
};
struct dsa_run : dsa::api::Handle<dsa::Run> {
  using Handle::Handle;
};
struct dsa_prompt : dsa::api::Handle<dsa::Prompt> {
  dsa_prompt(std::shared_ptr<dsa::Prompt> prompt, std::shared_ptr<dsa::Runtime> owner)
      : Handle(std::move(prompt)), runtime(std::move(owner)) {}
  const std::shared_ptr<dsa::Runtime> runtime;
};

namespace dsa::api {

template <class H>
Status check_handle(const H* handle, const char* name) {
  if (handle == nullptr) return error(Code::argument, name, " is NULL").with_fix(Fix::input);
  if (handle->pid != getpid())
    return error(Code::forked, "this process was made by fork; ", name, " belongs to its parent");
  return Status::ok();
}

template <class H>
void retain(const H* handle) noexcept {
  guard_void([&] {
    if (handle != nullptr && handle->pid == getpid())
      handle->references.fetch_add(1, std::memory_order_relaxed);
  });
}

// Drops one reference; `last(object)` runs before the handle of the last one goes. A hook that throws keeps
// it.
template <class H, class F>
void release(const H* handle, const F& last) noexcept {
  guard_void([&] {
    if (handle == nullptr || handle->pid != getpid()) return;
    if (handle->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    last(*handle->impl);
    delete handle;
  });
}

template <class H>
void release(const H* handle) noexcept {
  release(handle, [](const auto&) {});
}

}  // namespace dsa::api
